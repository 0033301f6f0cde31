# SPDX-License-Identifier: Apache-2.0
"""The digest of desired states."""

import json
import unittest

from attachd.rpc import desired_states

STATE = {"attachment_id": "a", "generation": 1, "complete": True, "connection_info": {}}


class DigestTest(unittest.TestCase):
    def test_digest_is_the_same_after_a_message_and_with_a_lease(self):
        expected = desired_states.digest([STATE])
        sent = json.loads(json.dumps([{**dict(reversed(STATE.items())), "lease": 30}]))
        self.assertEqual(expected, desired_states.digest(sent))

    def test_digest_differs_by_any_value_and_by_order(self):
        second = {**STATE, "attachment_id": "b"}
        lists = ([], [STATE], [{**STATE, "generation": 2}], [STATE, second], [second, STATE])
        self.assertEqual(len(lists), len({desired_states.digest(states) for states in lists}))
