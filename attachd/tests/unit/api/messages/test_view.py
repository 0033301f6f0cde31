# SPDX-License-Identifier: Apache-2.0
"""How messages to users look."""

import unittest

from attachd.api.messages import view
from attachd.tests import asking

ROW = {
    "id": "m",
    "event_id": "VOLUME_VOLUME_007_010",
    "action_id": "007",
    "detail_id": "010",
    "facts": None,
    "message_level": "ERROR",
    "created_at": "then",
    "expires_at": "later",
    "request_id": "req-1",
    "resource_type": "VOLUME",
    "resource_uuid": "v",
}


class ViewTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def test_numbers_become_words(self):
        shown = view.shown(ROW, asking.links())
        said = "extend volume:The backend could not extend the volume. Have an administrator reset"
        self.assertEqual(said, shown["user_message"][: len(said)])
        self.assertEqual(("then", "later"), (shown["created_at"], shown["guaranteed_until"]))
        self.assertIn("/messages/m", shown["links"][0]["href"])
        self.assertEqual({"self", "bookmark"}, {link["rel"] for link in shown["links"]})

    def test_what_the_words_leave_open_is_filled_in(self):
        facts = {"user_id": "100%", "attachment_id": "a"}
        row = ROW | {"action_id": "102", "detail_id": "102", "facts": facts}
        self.assertEqual(
            "delete attachment:User 100% had attachment a deleted by force.",
            view.shown(row, asking.links())["user_message"],
        )

    def test_numbers_of_another_release_are_no_accident(self):
        shown = view.shown(ROW | {"action_id": "999", "detail_id": "999"}, asking.links())
        self.assertRegex(shown["user_message"], "^unknown action:Something went wrong")
