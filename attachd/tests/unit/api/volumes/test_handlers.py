# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of volumes, below HTTP."""

import datetime
import unittest
from unittest import mock
import urllib.parse

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.volumes import backend_calls, handlers, load
from attachd.db.engine import session
from attachd.db.volumes import volume_metadata
from attachd.objects import Volume
from attachd.states import Event
from attachd.tests.fixtures import api_context, captured_notifications, db_rows


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend()
        self.ctx = api_context.make_context()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def call(self, handler, *arguments, ctx=None):
        return handler(ctx or self.ctx, *arguments, mv.LATEST, api_context.make_links())["volume"]


class CreateTest(Case):
    def test_create_stores_sends_and_shows_volume(self):
        body = {"volume": {"size": 2, "name": "n", "metadata": {"k": "v"}}}
        shown = self.call(handlers.create, body)
        self.assertEqual(
            ("creating", 2, "n", {"k": "v"}),
            tuple(shown[key] for key in ("status", "size", "name", "metadata")),
        )
        (_, sent), _ = self.manager_api.create_volume.call_args
        self.assertEqual(shown["id"], sent.id)
        self.assertEqual("here@fake#fake", db_rows.get_volume(shown["id"])["host"])

    def test_refused_create_stores_nothing(self):
        with self.assertRaises(exception.NoValidBackend):
            self.call(handlers.create, {"volume": {"size": 10**6}})
        self.assertEqual([], db_rows.list_volumes())
        self.manager_api.create_volume.assert_not_called()


class ShowTest(Case):
    def test_show_includes_attachments(self):
        volume = db_rows.add_volume()
        attachment = db_rows.add_attachment(volume["id"], "attached")
        shown = self.call(handlers.show, volume["id"])
        self.assertEqual("in-use", shown["status"])
        self.assertEqual([attachment["id"]], [a["attachment_id"] for a in shown["attachments"]])

    def test_show_for_other_project_is_not_found(self):
        volume = db_rows.add_volume()
        with self.assertRaises(exception.VolumeNotFound):
            self.call(
                handlers.show,
                volume["id"],
                ctx=api_context.make_context(project=api_context.OTHER_PROJECT),
            )


class UpdateTest(Case):
    def update(self, volume, **changes):
        return self.call(handlers.update, volume["id"], {"volume": changes})

    def test_update_changes_only_given_fields(self):
        volume = db_rows.add_volume(name="old", description="text")
        volume_metadata.merge(volume["id"], {"k": "v"})
        shown = self.update(volume, name="new")
        self.assertEqual(
            ("new", "text", {"k": "v"}),
            (shown["name"], shown["description"], shown["metadata"]),
        )
        self.assertIsNotNone(shown["updated_at"])

    def test_update_clears_name_and_description(self):
        shown = self.update(
            db_rows.add_volume(name="old", description="d"), name=None, description=""
        )
        self.assertEqual((None, ""), (shown["name"], shown["description"]))

    def test_update_replaces_metadata(self):
        volume = db_rows.add_volume()
        volume_metadata.merge(volume["id"], {"a": "1", "b": "2"})
        self.assertEqual({"b": "3"}, self.update(volume, metadata={"b": "3"})["metadata"])

    def test_update_in_maintenance_is_refused(self):
        with self.assertRaises(exception.InvalidVolume):
            self.update(db_rows.add_volume("maintenance"), name="n")

    def test_update_answer_lacks_extended_attributes(self):
        self.assertNotIn(
            "os-vol-tenant-attr:tenant_id", self.update(db_rows.add_volume(), name="n")
        )


class ApplyUpdateTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)
        self.volume = db_rows.add_volume(name="disk")["id"]

    def updated(self, **wanted):
        handlers._apply_update(Volume.get(api_context.make_context(), self.volume), wanted)
        volume = Volume.get(api_context.make_context(), self.volume)
        return volume.name, volume.description, volume.metadata

    def test_apply_update_keeps_other_fields(self):
        self.assertEqual(("disk", "mine", {}), self.updated(description="mine"))
        self.assertEqual(("disk", "mine", {"a": "b"}), self.updated(metadata={"a": "b"}))
        self.assertEqual(("new", "mine", {"a": "b"}), self.updated(name="new"))

    def test_apply_update_sends_notifications(self):
        self.updated(name="new")
        names = [message["payload"]["display_name"] for message in self.notifications.messages()]
        self.assertEqual(["disk", "new"], names)


class ListCase(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.ctx = api_context.make_context()

    def add(self, name, **values):
        first = datetime.datetime.fromisoformat("2026-01-01")
        day = first + datetime.timedelta(days=len(db_rows.list_volumes()))
        return db_rows.add_volume(name=name, created_at=day, **values)

    def remove(self, volume_id):
        volume = Volume.get(self.ctx, volume_id)
        volume.fire(Event.DELETE)
        volume.fire(Event.DELETED)

    def list(self, handler=handlers.detail, version=mv.LATEST, own=None, **query):
        self.ctx.attachd_version = own
        return handler(self.ctx, query, version, api_context.make_links())

    def names(self, **query):
        return "".join(volume["name"] for volume in self.list(**query)["volumes"])


class ExtListTest(ListCase):
    def test_index_under_attachd_1_0_counts_attachments(self):
        often = self.add("a", multiattach=True)["id"]
        self.add("b")
        for _item in range(3):
            db_rows.add_attachment(often, "attached")
        db_rows.add_attachment(often, "reserved")
        for handler in (handlers.index, handlers.detail):
            shown = self.list(handler, own=mv.ATTACHD_1_0)["volumes"]
            self.assertEqual([0, 3], [item["attachment_count"] for item in shown])
            self.assertNotIn("attachment_count", self.list(handler)["volumes"][0])


class PagesTest(ListCase):
    def setUp(self):
        super().setUp()
        for name in "abcde":
            self.add(name)

    def test_list_is_sorted_newest_first(self):
        self.assertEqual("edcba", self.names())

    def test_next_links_lead_through_all_pages(self):
        for handler, path in ((handlers.index, "volumes"), (handlers.detail, "volumes/detail")):
            query, seen = {"limit": "2", "consumes_quota": "true"}, ""
            while query:
                answer = self.list(handler, **query)
                seen += "".join(volume["name"] for volume in answer["volumes"])
                query = {}
                for link in answer.get("volumes_links", ()):
                    url = urllib.parse.urlsplit(link["href"])
                    self.assertEqual(f"/v3/{db_rows.PROJECT}/{path}", url.path)
                    query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                    self.assertIn("consumes_quota", query)
            self.assertEqual("edcba", seen)

    def test_next_links_stay_valid_with_concurrent_changes(self):
        ids = {row["name"]: row["id"] for row in db_rows.list_volumes()}
        answer = self.list(limit="2")
        self.assertEqual(["e", "d"], [volume["name"] for volume in answer["volumes"]])
        self.add("new")
        for name in "eb":  # one that was seen already, and one that was not
            self.remove(ids[name])
        url = urllib.parse.urlsplit(answer["volumes_links"][0]["href"])
        self.assertEqual("ca", self.names(**dict(urllib.parse.parse_qsl(url.query))))

    def test_link_with_deleted_marker_is_refused(self):
        query = {"limit": "2", "marker": db_rows.list_volumes()[1]["id"]}
        self.remove(query["marker"])
        with self.assertRaisesRegex(exception.MarkerNotFound, "start again"):
            self.list(**query)

    def test_last_page_has_no_link(self):
        self.assertNotIn("volumes_links", self.list(limit="6"))

    def test_with_count_counts_all_pages_of_filter(self):
        answer = self.list(limit="2", with_count="True")
        self.assertEqual((2, 5), (len(answer["volumes"]), answer["count"]))
        self.assertEqual(1, self.list(name="c", with_count="1")["count"])
        self.assertEqual(0, self.list(group_id="g", with_count="1")["count"])

    def test_with_count_before_3_45_is_refused_since_3_31(self):
        query = {"with_count": "True"}
        self.assertNotIn("count", self.list(version=mv.Version(3, 30), **query))
        for minor in (31, 44):
            with self.assertRaisesRegex(exception.BadRequest, "with_count"):
                self.list(version=mv.Version(3, minor), **query)
        self.assertNotIn("count", self.list())

    def test_detail_page_takes_three_statements(self):
        volume_metadata.merge(db_rows.list_volumes()[0]["id"], {"k": "v"})
        before = session.counters().statements
        self.list()
        self.assertEqual(3, session.counters().statements - before)

    def test_page_size_adds_no_statements(self):
        for number in range(50):
            volume = self.add(str(number))
            volume_metadata.merge(volume["id"], {"k": "v"})
            db_rows.add_attachment(volume["id"], "attached")
        before = session.counters().statements
        self.assertEqual(55, len(self.list()["volumes"]))
        self.assertEqual(3, session.counters().statements - before)


class SortTest(ListCase):
    def test_sort_keys_are_wire_names(self):
        self.add("b", size_gib=1)
        self.add("a", size_gib=3)
        self.add("c", size_gib=2)
        self.assertEqual("abc", self.names(sort="name:asc"))
        self.assertEqual("abc", self.names(sort_key="display_name", sort_dir="asc"))
        self.assertEqual("acb", self.names(sort="size"))

    def test_sort_by_host_is_refused(self):
        for key in ("host", "size_gib", "nonsense", ""):
            with self.assertRaisesRegex(exception.BadRequest, "sort key"):
                self.list(sort=key)


class FiltersTest(ListCase):
    def test_index_applies_filters(self):
        self.add("free", availability_zone="z")
        shared = self.add("used", size_gib=7)
        db_rows.add_attachment(shared["id"], "attached")
        volume_metadata.merge(shared["id"], {"k": "v"})
        self.add("other", project_id=api_context.OTHER_PROJECT)
        cases = {
            "free": {"status": "available"},
            "used": {"metadata": "{'k': 'v'}"},
            "": {"metadata": "{'k': 'w'}"},
        }
        for expected, query in cases.items():
            with self.subTest(query):
                self.assertEqual(expected, self.names(**query))
        self.assertEqual("used", self.names(size="7"))
        self.assertEqual("free", self.names(created_at="lt:2026-01-02"))
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.assertEqual("usedfree", self.names(**{"name~": "e"}))
        self.assertEqual("otherusedfree", self.names(all_tenants="1"))
        self.assertEqual(
            "other", self.names(all_tenants="1", project_id=api_context.OTHER_PROJECT)
        )


class SummaryTest(ListCase):
    def summary(self, version=mv.LATEST, **query):
        return handlers.summary(self.ctx, query, version)["volume-summary"]

    def test_summary_covers_project_of_caller(self):
        for size in (1, 2):
            volume = self.add("v", size_gib=size)
            volume_metadata.merge(volume["id"], {"k": str(size)})
        self.add("x", project_id=api_context.OTHER_PROJECT, size_gib=4)
        own = {"total_count": 2, "total_size": 3, "metadata": {"k": ["1", "2"]}}
        self.assertEqual(own, self.summary())
        self.assertEqual(own, self.summary(all_tenants="1"))
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.assertEqual((3, 7), tuple(self.summary(all_tenants="1").values())[:2])

    def test_summary_has_metadata_since_3_36(self):
        self.assertNotIn("metadata", self.summary(mv.Version(3, 35)))

    def test_summary_without_volumes_is_zero(self):
        self.assertEqual({"total_count": 0, "total_size": 0, "metadata": {}}, self.summary())


class DeleteTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.manager_api = self.enterContext(mock.patch.object(backend_calls, "manager_api"))

    def delete(self, volume_id, *roles, version=mv.LATEST, **query):
        request = webob.Request.blank("/")
        handlers.delete(api_context.make_context(*roles), volume_id, query, version, request)

    def test_delete_available_volume_marks_and_sends(self):
        for state in ("ready", "error", "error_deleting", "error_extending"):
            with self.subTest(state):
                volume = db_rows.add_volume(state)
                self.delete(volume["id"], cascade="True")
                shown = db_rows.get_volume(volume["id"])
                self.assertEqual(("deleting", "here@fake"), (shown["status"], shown["owner"]))
                self.assertEqual(volume["id"], self.manager_api.delete_volume.call_args.args[1].id)

    def test_delete_in_wrong_status_names_status(self):
        for state in ("creating", "extending", "deleting", "maintenance"):
            volume = db_rows.add_volume(state)
            with self.subTest(state), self.assertRaisesRegex(exception.InvalidVolume, state):
                self.delete(volume["id"])
        self.manager_api.delete_volume.assert_not_called()

    def test_delete_with_attachments_names_them(self):
        volume = db_rows.add_volume()
        attachment = db_rows.add_attachment(volume["id"], "attached")
        with self.assertRaisesRegex(exception.InvalidVolume, attachment["id"]):
            self.delete(volume["id"])
        self.assertEqual("in-use", db_rows.get_volume(volume["id"])["status"])

    def test_force_delete_without_admin_is_forbidden(self):
        volume = db_rows.add_volume("creating")
        with self.assertRaisesRegex(exception.Forbidden, "volume:force_delete"):
            self.delete(volume["id"], force="True")
        self.delete(volume["id"], *api_context.ADMIN, force="True")
        self.assertEqual("deleting", db_rows.get_volume(volume["id"])["status"])

    def test_force_before_3_23_is_ignored(self):
        volume = db_rows.add_volume("creating")
        with self.assertRaises(exception.InvalidVolume):
            self.delete(volume["id"], *api_context.ADMIN, version=mv.Version(3, 22), force="True")

    def test_force_delete_of_attached_volume_is_refused(self):
        volume = db_rows.add_volume()
        db_rows.add_attachment(volume["id"], "attached")
        with self.assertRaises(exception.InvalidVolume):
            self.delete(volume["id"], *api_context.ADMIN, force="True")
        self.assertEqual("in-use", db_rows.get_volume(volume["id"])["status"])

    def test_delete_with_invalid_parameter_changes_nothing(self):
        volume = db_rows.add_volume()
        for query in ({"force": "perhaps"}, {"cascade": ""}):
            with self.assertRaises(exception.InvalidInput):
                self.delete(volume["id"], **query)
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])

    def test_delete_by_other_project_or_reader_is_refused(self):
        volume = db_rows.add_volume()
        with self.assertRaises(exception.Forbidden):
            self.delete(volume["id"], "reader")
        strange = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)
        with self.assertRaises(exception.VolumeNotFound):
            self.delete(strange["id"])


class EncryptionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.loaded = self.enterContext(mock.patch.object(load, "get"))

    def test_show_encryption_has_no_key(self):
        self.assertEqual(
            {"encryption_key_id": None}, handlers.show_encryption(mock.sentinel.ctx, "v")
        )

    def test_show_encryption_of_other_project_is_not_found(self):
        self.loaded.side_effect = exception.VolumeNotFound(volume_id="v")
        with self.assertRaises(exception.VolumeNotFound):
            handlers.show_encryption_field(mock.sentinel.ctx, "v", "encryption_key_id")

    def test_show_unknown_encryption_field_is_not_found(self):
        self.assertIsNone(
            handlers.show_encryption_field(mock.sentinel.ctx, "v", "encryption_key_id")
        )
        with self.assertRaisesRegex(exception.NotFound, "has no cipher"):
            handlers.show_encryption_field(mock.sentinel.ctx, "v", "cipher")
