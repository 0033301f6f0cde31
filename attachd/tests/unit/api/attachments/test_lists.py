# SPDX-License-Identifier: Apache-2.0
"""Lists of attachments, with the database replaced."""

import unittest
from unittest import mock

from attachd.api import microversions as mv
from attachd.api.attachments import lists
from attachd.conf import CONF
from attachd.tests.unit.api.attachments import test_view


class ListsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        self.db = self.enterContext(mock.patch.object(lists, "attachment_queries"))
        self.db.page.return_value = [test_view.row()]
        self.db.page_in_full.return_value = [test_view.row()]
        self.ctx = mock.Mock(is_admin=False, project_id="p", service_roles=[])

    def test_a_short_list_reads_no_secrets(self):
        (shown,) = lists.index(self.ctx, {"limit": "5"}, mv.LATEST, None)["attachments"]
        self.assertEqual({"id", "status", "instance", "volume_id"}, set(shown))
        self.db.page_in_full.assert_not_called()
        asked, page = self.db.page.call_args.args
        self.assertEqual(({"project_id": "p"}, 5), (asked, page.limit))

    def test_a_full_list_is_one_query_too(self):
        (shown,) = lists.detail(self.ctx, {}, mv.LATEST, None)["attachments"]
        self.assertIn("connection_info", shown)
        self.db.page_in_full.assert_called_once()

    def test_both_take_the_filters_of_attachd(self):
        query = {"agent": "node1"}
        for list_, asked in ((lists.index, self.db.page), (lists.detail, self.db.page_in_full)):
            asked.return_value = []
            list_(self.ctx, query, mv.LATEST, mv.EXT_BASE)
            self.assertEqual({"project_id": "p", **query}, asked.call_args.args[0])
