# SPDX-License-Identifier: Apache-2.0
"""Tests of the filters of lists of attachments."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import filter_register
from attachd.api import microversions as mv
from attachd.api.attachments import filters

SERVER = "abcdefab-cdef-4abc-8def-abcdefabcdef"
LAST_OLD = mv.Version(3, 33)

MOVE_FROM = "abcdefab-cdef-4abc-8def-abcdefabcdef"


def read(query, version=mv.LATEST, attachd_version=None, *, is_admin=False):
    ctx = mock.Mock(is_admin=is_admin, project_id="p", attachd_version=attachd_version)
    return filters.parse(ctx, query, version)


class FiltersTest(unittest.TestCase):
    def test_list_is_limited_to_project_of_caller(self):
        self.assertEqual({"project_id": "p"}, read({}))
        self.assertEqual({"project_id": "p"}, read({"all_tenants": "1"}))
        self.assertEqual({}, read({"all_tenants": "1"}, is_admin=True))

    def test_admin_filters_by_project(self):
        query = {"project_id": "q", "all_tenants": "1"}
        self.assertEqual({"project_id": "q"}, read(query, is_admin=True))
        with self.assertRaisesRegex(exception.BadRequest, "Invalid filters project_id"):
            read(query)

    def test_member_filter_by_other_project_matches_nothing(self):
        with mock.patch.object(filter_register, "for_members", return_value=("project_id",)):
            self.assertEqual({"states": frozenset()}, read({"project_id": "q"}))
            self.assertEqual({"project_id": "p"}, read({"project_id": "p"}))

    def test_wire_names_map_to_columns(self):
        query = {"volume_id": "v", "instance_id": "i", "attached_host": "h"}
        parsed = read(query, is_admin=True)
        self.assertEqual(
            {"project_id": "p", "volume_id": "v", "instance_uuid": "i", "host": "h"}, parsed
        )

    def test_id_filter_is_canonicalised(self):
        for name, column in (("volume_id", "volume_id"), ("instance_id", "instance_uuid")):
            for written in (SERVER, SERVER.upper(), SERVER.replace("-", "")):
                self.assertEqual(SERVER, read({name: written})[column])

    def test_status_filter_takes_wire_states(self):
        for name in ("status", "attach_status"):
            attaching = {"held", "connecting", "connected"}
            self.assertEqual(attaching, read({name: "attaching"})["states"])
            self.assertEqual(set(), read({name: "connecting"})["states"])
        both = read({"status": "attached", "attach_status": "reserved"})
        self.assertEqual(set(), both["states"])

    def test_like_filter_matches_substring_since_3_34(self):
        query = {"volume_id~": "v", "attached_host~": "h", "status~": "error"}
        parsed = read(query, is_admin=True)
        self.assertEqual({"volume_id": "v", "host": "h"}, parsed["like"])
        self.assertEqual(
            {"connect_failed", "connect_unknown", "disconnect_failed"}, parsed["states"]
        )
        with self.assertRaisesRegex(exception.BadRequest, "Invalid filters volume_id~"):
            read({"volume_id~": "v"}, LAST_OLD, is_admin=True)

    def test_every_registered_filter_is_parsed(self):
        for name in filter_register.ATTACHMENT.known:
            parsed = read({name: "x"}, is_admin=True)
            self.assertGreater(len(parsed), name != "project_id", name)

    def test_every_sort_key_is_sortable_column(self):
        from attachd.db.attachments import attachment_queries

        self.assertLessEqual(set(filters.SORT_KEYS.values()), attachment_queries.SORTABLE)


class ExtFiltersTest(unittest.TestCase):
    """Filters of attachd 1.0."""

    def refused(self, name, value):
        with self.assertRaises(exception.InvalidInput) as raised:
            read({name: value}, attachd_version=mv.ATTACHD_1_0)
        self.assertIn(f"attribute {name}", str(raised.exception))

    def test_ext_filters_without_attachd_version_are_unknown(self):
        for name in filters.ATTACHD_FILTERS:
            with self.assertRaisesRegex(exception.BadRequest, f"Invalid filters {name}"):
                read({name: "gt:2026-01-01"}, is_admin=True)

    def test_time_and_agent_filters_combine_with_others(self):
        query = {
            "updated_at": "lt:2026-01-01T00:00:00",
            "attached_at": "gte:2025-01-01,neq:2025-06-01",
            "agent": "n1",
            "move_from": MOVE_FROM.upper(),
            "status": "attaching",
            "instance_id": "i",
        }
        parsed = read(query, attachd_version=mv.ATTACHD_1_0)
        times = [(item.column, item.verb, item.moment.year) for item in parsed.pop("times")]
        expected = [
            ("attached_at", "gte", 2025),
            ("attached_at", "neq", 2025),
            ("updated_at", "lt", 2026),
        ]
        self.assertEqual(expected, sorted(times))
        attaching = {"held", "connecting", "connected"}
        others = {"agent": "n1", "instance_uuid": "i", "project_id": "p", "states": attaching}
        others["move_from"] = MOVE_FROM
        self.assertEqual(others, parsed)

    def test_condition_filter_matches_only_attached(self):
        for query in ({"condition": "failed"}, {"condition": "failed", "status": "attached"}):
            parsed = read(query, attachd_version=mv.ATTACHD_1_0)
            found = (parsed["condition_state"], parsed["states"])
            self.assertEqual(("failed", {"attached"}), found)
        parsed = read({"condition": "ok", "status": "reserved"}, attachd_version=mv.ATTACHD_1_0)
        self.assertEqual(set(), parsed["states"])
        with self.assertRaisesRegex(exception.InvalidInput, "degraded, failed, ok"):
            read({"condition": "good"}, attachd_version=mv.ATTACHD_1_0)

    def test_invalid_ext_filter_is_refused_by_name(self):
        for name in ("created_at", "updated_at", "attached_at"):
            for value in (
                "2026-01-01",
                "lt:yesterday",
                "about:2026-01-01",
                ",".join(["lt:2026-01-01"] * 101),
            ):
                self.refused(name, value)
        for name in ("status", "attach_status"):
            self.refused(name, "connecting")


class DeletedTest(unittest.TestCase):
    @staticmethod
    def parse(query, *, is_admin=False):
        ctx = mock.Mock(is_admin=is_admin, project_id="p")
        return filters.parse_deleted(ctx, query)

    def test_deleted_needs_attachd_1_1(self):
        for version, expected in ((None, False), (mv.ATTACHD_1_0, False), (mv.ATTACHD_1_1, True)):
            query = {"deleted": "true", "limit": "1"}
            ctx = mock.Mock(attachd_version=version)
            self.assertIs(expected, filters.pop_deleted(ctx, query))
            self.assertEqual(not expected, "deleted" in query)

    def test_deleted_false_lists_those_that_exist(self):
        query = {"deleted": "false"}
        self.assertIs(False, filters.pop_deleted(mock.Mock(attachd_version=mv.ATTACHD_1_1), query))
        self.assertEqual({}, query)

    def test_filters_of_deleted_map_to_columns_of_events(self):
        query = {"volume_id": SERVER.upper(), "detached_at": "lt:2026-01-31T12:00:00"}
        parsed = self.parse(query)
        self.assertEqual(("p", SERVER), (parsed["project_id"], parsed["volume_id"]))
        (compared,) = parsed["times"]
        self.assertEqual(("created_at", "lt"), compared[:2])

    def test_members_see_their_project_only(self):
        self.assertEqual({"project_id": "p"}, self.parse({"all_tenants": "1"}))
        self.assertIsNone(self.parse({"project_id": "q"}))
        self.assertEqual({}, self.parse({"all_tenants": "1"}, is_admin=True))
        self.assertEqual({"project_id": "q"}, self.parse({"project_id": "q"}, is_admin=True))

    def test_other_filters_are_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "no filter 'status', but these"):
            self.parse({"status": "attached"})
