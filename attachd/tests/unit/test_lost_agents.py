# SPDX-License-Identifier: Apache-2.0
"""Rules about lost agents: extra specs of types, options of backends."""

import unittest

from attachd import exception, lost_agents
from attachd.lost_agents import Action, Rule


class ParseTest(unittest.TestCase):
    def test_parse_without_specs_and_options_is_nothing(self):
        self.assertEqual(Rule(Action.NOTHING, 60), lost_agents.parse({"other": "1"}, None))

    def test_parse_prefers_each_spec_to_option_of_backend(self):
        backend = {"on_lost_agent": "mark", "lost_agent_timeout": 30}
        for specs, expected in (
            ({}, Rule(Action.MARK, 30)),
            ({"on_lost_agent": "fence"}, Rule(Action.FENCE, 30)),
            ({"lost_agent_timeout": "90"}, Rule(Action.MARK, 90)),
            ({"on_lost_agent": "nothing", "lost_agent_timeout": None}, Rule(Action.NOTHING, 30)),
            ({"on_lost_agent": "bogus", "lost_agent_timeout": "soon"}, Rule(Action.MARK, 30)),
        ):
            with self.subTest(specs):
                self.assertEqual(expected, lost_agents.parse(specs, backend))

    def test_get_timeout_is_the_shortest_of_an_action(self):
        rules = [Rule(Action.FENCE, 90), Rule(Action.FENCE, 30), Rule(Action.MARK, 10)]
        self.assertEqual(30, lost_agents.get_timeout(rules, Action.FENCE))
        self.assertIsNone(lost_agents.get_timeout(rules[2:], Action.FENCE))


class CheckTest(unittest.TestCase):
    def test_valid_specs_pass(self):
        lost_agents.check({"on_lost_agent": "fence", "lost_agent_timeout": "10", "x": "y"})
        lost_agents.check({"on_lost_agent": None})

    def test_values_without_meaning_are_refused_with_their_field(self):
        for key, value, reason in (
            ("on_lost_agent", "Fence", "nothing, mark, fence"),
            ("lost_agent_timeout", "9", "10 to 86400"),
            ("lost_agent_timeout", "86401", "10 to 86400"),
            ("lost_agent_timeout", "1m", "10 to 86400"),
        ):
            with (
                self.subTest(value),
                self.assertRaisesRegex(exception.InvalidInput, f"{reason}.*extra_specs.{key}"),
            ):
                lost_agents.check({key: value})
