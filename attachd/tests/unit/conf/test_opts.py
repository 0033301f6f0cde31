# SPDX-License-Identifier: Apache-2.0
"""The options for the generator of sample configurations."""

from pathlib import Path
import unittest

from stevedore import extension

from attachd import conf
from attachd.api import app, health
from attachd.conf import opts

_GENERATOR = Path(__file__).parents[4] / "etc" / "attachd" / "config-generator.conf"


class ListTest(unittest.TestCase):
    """The list of all options."""

    def setUp(self):
        super().setUp()
        self.listed = [(group.name, options) for group, options in opts.list_opts()]

    def test_list_opts_has_all_groups(self):
        listed = {group: [option.name for option in options] for group, options in self.listed}
        for group in conf.GROUPS:
            self.assertEqual([option.name for option in group.OPTIONS], listed[group.GROUP])

    def test_list_opts_has_group_per_driver(self):
        listed = dict(self.listed)
        drivers = extension.ExtensionManager("attachd.drivers")
        self.assertLessEqual({"fake", "file", "tgt"}, set(drivers.names()))
        for driver in drivers:
            expected = [*conf.manager.BACKEND_OPTIONS, *driver.plugin.OPTIONS]
            self.assertEqual(expected, listed[driver.name])

    def test_groups_have_help(self):
        for group, _options in opts.list_opts():
            self.assertRegex(group.help, r"^[A-Z][^;]+[^.]\.$|^A backend .*\.$", group.name)

    def test_list_opts_has_no_duplicates(self):
        names = [group for group, _options in self.listed]
        self.assertEqual(sorted(set(names)), sorted(names))
        for group, options in self.listed:
            self.assertEqual(len({option.dest for option in options}), len(options), group)

    def test_sample_has_only_used_middleware(self):
        prefix = "namespace = oslo.middleware."
        found = [
            line.removeprefix(prefix).strip()
            for line in _GENERATOR.read_text().splitlines()
            if line.startswith(prefix)
        ]
        self.assertEqual(["healthcheck", "http_proxy_to_wsgi", "tracing"], sorted(found))
        # telemetry/tracing.py imports that module when it is needed.
        self.assertLessEqual({*found} - {"tracing"}, {*vars(app), *vars(health)})
