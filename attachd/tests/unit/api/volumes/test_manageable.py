# SPDX-License-Identifier: Apache-2.0
"""Lists of existing objects: order, pages and pools."""

import json
from unittest import mock
import urllib.parse

from oslo_utils import units

from attachd.drivers.abilities import ManageableObject
from attachd.tests.fixtures import backends, wsgi_api
from attachd.tests.functional.api_case import ApiCase

HOST = backends.HOST


class ListTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.driver.existing |= {
            "a": 3 * units.Gi,
            "b": units.Gi,
            "c": 2 * units.Gi,
            "d": 2 * units.Gi,
        }

    def listed(self, **query):
        query = {"host": HOST, **query}
        path = f"/manageable_volumes/detail?{urllib.parse.urlencode(query)}"
        found = self.expect(200, "GET", path, token=wsgi_api.ADMIN).body["manageable-volumes"]
        return [item["reference"]["source-name"] for item in found]

    def test_list_is_sorted_by_reference_downwards_by_default(self):
        self.assertEqual(list("dcba"), self.listed())
        self.assertEqual(list("abcd"), self.listed(sort="reference:asc"))
        self.assertEqual(list("abcd"), self.listed(sort_dir="asc"))
        self.assertEqual(list("bcda"), self.listed(sort="size:asc,reference:asc"))
        self.assertEqual(list("bdca"), self.listed(sort="size:asc,reference"))
        self.assertEqual("a", self.listed(sort_key="size")[0])

    def test_list_comes_in_pages(self):
        marker = json.dumps({"source-name": "c"})
        self.assertEqual(["d", "c"], self.listed(limit=2))
        self.assertEqual(["b"], self.listed(limit=1, marker=marker))
        self.assertEqual(["a"], self.listed(limit=2, marker=marker, offset=1))
        self.assertEqual([], self.listed(marker=json.dumps({"source-name": "a"})))
        self.assertEqual([], self.listed(limit=0))

    def test_list_of_pool_has_its_objects(self):
        self.assertEqual(list("dcba"), self.listed(host=f"{HOST}#fake"))
        objects = [ManageableObject({"source-name": name}, units.Gi, pool=name) for name in "abc"]
        with mock.patch.object(self.driver, "list_manageable", return_value=objects):
            self.assertEqual(list("cba"), self.listed())
            self.assertEqual(["b"], self.listed(host=f"{HOST}#b"))

    def test_list_of_backend_that_fails_returns_503(self):
        with self.driver.failing("list_manageable"):
            path = f"/manageable_volumes?host={HOST}"
            answer = self.expect(503, "GET", path, token=wsgi_api.ADMIN)
        self.assertIn("backend failed", answer.fault)

    def test_object_of_other_pool_is_refused(self):
        found = ManageableObject({"source-name": "a"}, units.Gi, pool="b")
        body = {"volume": {"host": f"{HOST}#fake", "ref": {"source-name": "a"}}}
        with mock.patch.object(self.driver, "get_manageable", return_value=found):
            answer = self.expect(400, "POST", "/manageable_volumes", body, token=wsgi_api.ADMIN)
        self.assertIn(f"{HOST}#b", answer.fault)
