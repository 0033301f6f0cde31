# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of quota sets and quota classes."""

import unittest

from attachd import exception
from attachd.api.quotas import handlers
from attachd.conf import CONF
from attachd.db import quotas
from attachd.db.types import type_store
from attachd.tests.fixtures import api_context, db_rows


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context(*api_context.ADMIN)

    def show(self, *roles, project=db_rows.PROJECT, **query):
        return handlers.show(api_context.make_context(*roles), project, query)["quota_set"]

    def update(self, query=None, **body):
        shown = handlers.update(self.ctx, db_rows.PROJECT, {"quota_set": body}, query or {})
        return shown["quota_set"]


class ShowTest(Case):
    def test_show_has_all_known_resources(self):
        CONF.set_override("quota_volumes", 10, group="quota")
        CONF.set_override("quota_gigabytes", 1000, group="quota")
        self.assertEqual(
            {
                "id": db_rows.PROJECT,
                "volumes": 10,
                "gigabytes": 1000,
                "per_volume_gigabytes": -1,
                "snapshots": 10,
                "backups": 10,
                "backup_gigabytes": 1000,
                "groups": 10,
            },
            self.show(),
        )

    def test_attachments_are_shown_with_attachd_version_only(self):
        own = api_context.make_context(*api_context.ADMIN, attachd_version=(1, 0))
        shown = handlers.update(own, db_rows.PROJECT, {"quota_set": {"attachments": 7}}, {})
        self.assertEqual(7, shown["quota_set"]["attachments"])
        shown = handlers.update_class(own, "default", {"quota_class_set": {"attachments": 8}})
        self.assertEqual(8, shown["quota_class_set"]["attachments"])
        self.assertEqual(8, handlers.show_class(own, "default")["quota_class_set"]["attachments"])
        db_rows.add_attachment(db_rows.add_volume()["id"])
        shown = handlers.show(own, db_rows.PROJECT, {"usage": "True"})["quota_set"]
        self.assertEqual({"limit": 7, "in_use": 1, "reserved": 0}, shown["attachments"])
        self.assertNotIn("attachments", self.show())
        with self.assertRaisesRegex(exception.BadRequest, "'attachments'"):
            self.update(attachments=1)

    def test_show_has_limits_of_each_type(self):
        api_context.add_type("gold")
        quotas.set_limits(db_rows.PROJECT, {"volumes_gold": 3})
        shown = self.show()
        self.assertEqual(
            [3, -1, -1], [shown[f"{part}_gold"] for part in ("volumes", "gigabytes", "snapshots")]
        )

    def test_show_has_private_types_of_project_only(self):
        black = api_context.add_type("black", is_public=False)["id"]
        self.assertNotIn("volumes_black", self.show())
        self.assertIn("volumes_black", self.show(*api_context.ADMIN))
        type_store.add_access(black, db_rows.PROJECT)
        self.assertIn("volumes_black", self.show())

    def test_show_with_usage(self):
        api_context.add_type("gold")
        db_rows.add_volume("extending", size_gib=3, new_size_gib=5)
        shown = self.show(usage="True")
        self.assertEqual({"limit": -1, "in_use": 1, "reserved": 0}, shown["volumes"])
        self.assertEqual({"limit": -1, "in_use": 3, "reserved": 2}, shown["gigabytes"])
        self.assertEqual({"limit": 10, "in_use": 0, "reserved": 0}, shown["snapshots"])
        self.assertEqual({"limit": -1, "in_use": 0, "reserved": 0}, shown["volumes_gold"])
        self.assertEqual(db_rows.PROJECT, shown["id"])

    def test_show_of_other_project_needs_admin(self):
        with self.assertRaises(exception.Forbidden):
            self.show(project=api_context.OTHER_PROJECT)
        self.assertEqual("x", self.show(*api_context.ADMIN, project="x")["id"])
        with self.assertRaises(exception.Forbidden):
            handlers.defaults(api_context.make_context(), api_context.OTHER_PROJECT)

    def test_defaults_ignore_quotas_of_project(self):
        quotas.set_class_limits("default", {"volumes": 5, "gigabytes": 6})
        quotas.set_limits(db_rows.PROJECT, {"volumes": 7})
        shown = handlers.defaults(api_context.make_context(), db_rows.PROJECT)["quota_set"]
        self.assertEqual(
            (5, 6, db_rows.PROJECT), (shown["volumes"], shown["gigabytes"], shown["id"])
        )
        self.assertEqual(7, self.show()["volumes"])


class UpdateTest(Case):
    def test_update_sets_some_and_returns_all(self):
        shown = self.update(volumes=5, gigabytes="007", backups=-1, tenant_id="x", id="y")
        self.assertEqual((5, 7, -1), (shown["volumes"], shown["gigabytes"], shown["backups"]))
        self.assertNotIn("id", shown)
        self.assertEqual(
            {"volumes": 5, "gigabytes": 7, "backups": -1}, quotas.project_limits(db_rows.PROJECT)
        )

    def test_update_of_unknown_resource_is_refused_by_name(self):
        with self.assertRaisesRegex(exception.BadRequest, "quota set: 'cores', 'volumes_gold'$"):
            self.update(volumes=5, cores=1, volumes_gold=1)
        self.assertEqual({}, quotas.project_limits(db_rows.PROJECT))
        api_context.add_type("gold")
        self.assertEqual(1, self.update(volumes_gold=1)["volumes_gold"])

    def test_update_below_usage_needs_force(self):
        db_rows.add_volume(size_gib=2)
        for query in ({}, {"skip_validation": "False"}):
            with self.assertRaisesRegex(exception.BadRequest, "2 are used already"):
                self.update(query, gigabytes=1)
        self.assertEqual(1, self.update({"skip_validation": "True"}, gigabytes=1)["gigabytes"])
        self.assertEqual(0, self.update(gigabytes=0, force=True)["gigabytes"])

    def test_update_with_too_long_project_id_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "at most 64 characters"):
            handlers.update(self.ctx, "x" * 65, {"quota_set": {"volumes": 1}}, {})


class DeleteTest(Case):
    def test_delete_restores_defaults(self):
        self.update(volumes=5)
        handlers.delete(self.ctx, db_rows.PROJECT)
        handlers.delete(self.ctx, db_rows.PROJECT)
        self.assertEqual(-1, self.show()["volumes"])

    def test_delete_with_too_long_project_id_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "at most 64 characters"):
            handlers.delete(self.ctx, "x" * 65)


class ClassesTest(api_context.ApiContextCase):
    def update(self, name, **body):
        body = {"quota_class_set": body}
        return handlers.update_class(api_context.make_context(), name, body)["quota_class_set"]

    def show(self, name):
        return handlers.show_class(api_context.make_context(), name)["quota_class_set"]

    def test_update_class_is_shown(self):
        api_context.add_type("gold")
        shown = self.update("default", volumes=5, gigabytes_gold="9")
        self.assertEqual((5, 9, -1), tuple(shown[name] for name in
                         ("volumes", "gigabytes_gold", "gigabytes")))  # fmt: skip
        self.assertNotIn("id", shown)
        self.assertEqual({**shown, "id": "default"}, self.show("default"))

    def test_show_class_falls_back_to_defaults(self):
        self.update("default", volumes=5)
        self.update("big", gigabytes=7)
        shown = self.show("big")
        self.assertEqual((5, 7, "big"), (shown["volumes"], shown["gigabytes"], shown["id"]))
        self.assertEqual(-1, self.show("default")["gigabytes"])

    def test_update_class_of_unknown_resource_is_refused_by_name(self):
        with self.assertRaisesRegex(exception.BadRequest, "quota class set: 'id', 'volumes_x'$"):
            self.update("default", id=1, volumes_x=2)


class LimitsTest(unittest.TestCase):
    def test_requested_limits_converts_strings(self):
        self.assertEqual(
            {"a": -1, "b": 12},
            handlers.requested_limits({"a": "-1", "b": "012"}, "set", ["a", "b", "c"]),
        )

    def test_requested_limits_with_unknown_names_lists_first_ones(self):
        many = {f"k{number}": 1 for number in range(100)}
        with self.assertRaises(exception.BadRequest) as caught:
            handlers.requested_limits({**many, "x" * 500: 1}, "quota set", [])
        self.assertRegex(str(caught.exception), "^Bad key.s. in quota set: 'k0', 'k1'")
        self.assertLess(len(str(caught.exception)), 200)
