# SPDX-License-Identifier: Apache-2.0
"""Default types of projects."""

from attachd import exception
from attachd.api.types import default_types
from attachd.tests.fixtures import api_context


class DefaultTypesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.admin = api_context.make_context(*api_context.ADMIN)
        self.gold = api_context.add_type("gold")["id"]
        self.hidden = api_context.add_type("hidden", is_public=False)["id"]

    def put(self, project, kind):
        body = {"default_type": {"volume_type": kind}}
        return default_types.put(self.admin, project, body)["default_type"]

    def test_put_by_id_or_name_sets_default_type(self):
        for wanted in ("gold", self.gold):
            expected = {"project_id": "p", "volume_type_id": self.gold}
            self.assertEqual(expected, self.put("p", wanted))
            self.assertEqual({"default_type": expected}, default_types.show("p"))

    def test_put_takes_private_type(self):
        self.assertEqual(self.hidden, self.put("p", "hidden")["volume_type_id"])

    def test_index_lists_all_default_types(self):
        self.assertEqual({"default_types": []}, default_types.index())
        self.put("b", "gold")
        self.put("a", "hidden")
        self.assertEqual(
            [("a", self.hidden), ("b", self.gold)],
            [(default_type["project_id"], default_type["volume_type_id"])
             for default_type in default_types.index()["default_types"]],
        )  # fmt: skip

    def test_delete_with_or_without_default_type_succeeds(self):
        self.put("p", "gold")
        for _ in range(2):
            default_types.delete("p")
        with self.assertRaises(exception.DefaultTypeNotFound):
            default_types.show("p")

    def test_put_with_unknown_type_is_bad_request(self):
        for wanted in ("silver", api_context.new_id()):
            with self.assertRaisesRegex(exception.BadRequest, wanted):
                self.put("p", wanted)

    def test_put_with_too_long_project_id_is_not_found(self):
        with self.assertRaises(exception.NotFound):
            self.put("p" * 65, "gold")
