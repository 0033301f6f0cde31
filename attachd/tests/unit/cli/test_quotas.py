# SPDX-License-Identifier: Apache-2.0
"""The commands on the quota of attachments."""

import json
import types
from unittest import mock

from openstack import exceptions

from attachd.tests.unit.cli.programs import Case

PROJECT = "1c6ed1a3-81c1-48f4-a9c8-26f73a455e50"


class QuotasTest(Case):
    def setUp(self):
        super().setUp()
        self.cloud.identity = mock.Mock()
        self.cloud.identity.find_project.return_value = types.SimpleNamespace(id="p1")

    def test_show_returns_limit_and_use(self):
        shown = json.loads(self.run_it("attachment-quota-show", PROJECT, "-f", "json"))
        self.assertEqual({"project_id": PROJECT, "limit": 7, "in_use": 2}, shown)
        self.cloud.identity.find_project.assert_not_called()

    def test_set_sends_limit_of_named_project(self):
        self.run_it("attachment-quota-set", "demo", "unlimited", "--force")
        method, url, request = self.cloud.asked[0]
        self.assertEqual(("PUT", "/os-quota-sets/p1"), (method, url))
        self.assertEqual({"quota_set": {"attachments": -1, "force": True}}, request["json"])

    def test_wrong_limit_is_refused(self):
        for text in ("-2", "x", "", "1.5"):
            self.run_it("attachment-quota-set", PROJECT, text, code=2)
        self.assertEqual([], self.cloud.asked)

    def test_unknown_project_is_an_error(self):
        self.cloud.identity.find_project.return_value = None
        self.run_it("attachment-quota-show", "demo", code=1)
        self.assertIn("There is no project demo.", self.said)
        self.cloud.identity.find_project.side_effect = exceptions.SDKException("no catalog")
        self.run_it("attachment-quota-show", "demo", code=1)
        self.assertIn("Project demo cannot be looked up: no catalog. Give its ID.", self.said)
