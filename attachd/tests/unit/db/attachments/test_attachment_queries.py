# SPDX-License-Identifier: Apache-2.0
"""Lists of attachments: filters, columns, cost, and shared connections."""

import datetime

from attachd import exception
from attachd.db.attachments import attachment_queries
from attachd.db.engine import session
from attachd.db.engine.paging import Comparison, Page
from attachd.states import AttachmentState
from attachd.tests.fixtures import databases, db_rows


class QueriesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.one = db_rows.add_volume(multiattach=True)["id"]
        self.two = db_rows.add_volume(multiattach=True)["id"]
        self.first = db_rows.add_attachment(self.one, "attached", instance_uuid="i1")["id"]
        self.second = db_rows.add_attachment(
            self.one, "reserved", instance_uuid="i2", move_from=self.first
        )["id"]
        self.third = db_rows.add_attachment(
            self.two, "attached", instance_uuid="i1", host="Compute-2", project_id="other"
        )["id"]
        db_rows.change_attachment(self.third, condition_state="failed")

    def _ids(self, page=None, **filters):
        found = attachment_queries.page(filters, page or Page(limit=10))
        return [row["id"] for row in found]

    def test_page_with_filter_returns_matches_newest_first(self):
        cases = [
            ({}, [self.third, self.second, self.first]),
            ({"project_id": db_rows.PROJECT}, [self.second, self.first]),
            ({"volume_id": self.one}, [self.second, self.first]),
            ({"instance_uuid": "i1"}, [self.third, self.first]),
            ({"host": "compute-1"}, [self.first]),
            ({"move_from": self.first}, [self.second]),
            ({"condition_state": "failed"}, [self.third]),
            ({"states": {AttachmentState.ATTACHED}}, [self.third, self.first]),
            ({"states": frozenset()}, []),
            ({"states": {AttachmentState.ATTACHED}, "project_id": "other"}, [self.third]),
            ({"like": {"host": "ompute-"}}, [self.third, self.first]),
            ({"like": {"host": "%"}}, []),
        ]
        for filters, expected in cases:
            with self.subTest(filters):
                self.assertEqual(expected, self._ids(**filters))

    def test_page_compares_times_despite_clock_skew(self):
        noon = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - the tables' times have no zone
        hour = datetime.timedelta(hours=1)
        times = {"created_at": noon, "updated_at": noon + hour, "attached_at": noon - hour / 2}
        db_rows.change_attachment(self.first, agent="n1", **times)
        cases = [
            ("created_at", "lte", noon, [self.first]),
            ("created_at", "lt", noon, []),
            ("updated_at", "lt", noon + 2 * hour, [self.first]),
            ("updated_at", "gt", noon + 2 * hour, [self.third, self.second]),
            ("attached_at", "eq", noon - hour / 2, [self.first]),
            ("attached_at", "lt", noon, [self.first]),
        ]
        for column, verb, moment, expected in cases:
            with self.subTest(column, verb=verb):
                self.assertEqual(expected, self._ids(times=[Comparison(column, verb, moment)]))
        old = [Comparison("updated_at", "lt", noon + 2 * hour)]
        self.assertEqual([self.first], self._ids(times=old, agent="n1", host="compute-1"))
        self.assertEqual([], self._ids(times=old, agent="n2"))
        last = datetime.datetime.max  # noqa: DTZ901 - as above
        end = [Comparison("updated_at", "lte", last)]
        self.assertEqual([self.first], self._ids(times=end, agent="n1"))

    def test_page_returns_secrets_only_with_secrets(self):
        (brief,) = attachment_queries.page({"host": "compute-1"}, Page(limit=1))
        self.assertFalse({"connector", "connection_info", "secret"} & brief.keys())
        (full,) = attachment_queries.page_with_secrets({"host": "compute-1"}, Page(limit=1))
        self.assertEqual(db_rows.get_attachment(self.first), full)
        self.assertEqual({**full, **brief}, full)

    def test_page_leaves_invisible_kinds_out(self):
        db_rows.add_attachment(self.one, "held")
        db_rows.add_attachment(self.one, "connected", kind="connection")
        legacy = db_rows.add_attachment(self.two, "attached", kind="legacy")["id"]
        self.assertEqual([legacy, self.third, self.second, self.first], self._ids())
        self.assertEqual([self.second, self.first], self._ids(volume_id=self.one))
        found = attachment_queries.list_of_volumes([self.one, self.two])
        self.assertEqual([self.first, self.second], [row["id"] for row in found[self.one]])
        self.assertEqual([self.third, legacy], [row["id"] for row in found[self.two]])

    def test_page_with_marker_of_other_project_is_refused(self):
        page = Page(limit=10, marker=self.third)
        self.assertRaises(exception.MarkerNotFound, self._ids, page, project_id=db_rows.PROJECT)

    def test_page_continues_after_marker(self):
        self.assertEqual([self.third], self._ids(Page(limit=1)))
        self.assertEqual([self.second], self._ids(Page(limit=1, marker=self.third)))

    def test_count_attached_is_one_statement(self):
        volumes = [db_rows.add_volume(multiattach=True)["id"] for _item in range(2)]
        for state in ("attached", "connected", "attached", "disconnecting"):
            db_rows.add_attachment(volumes[0], state)
        db_rows.add_attachment(volumes[0], "attached", kind="legacy")
        before = session.counters().statements
        counted = attachment_queries.count_attached(volumes)
        self.assertEqual(1, session.counters().statements - before)
        self.assertEqual({volumes[0]: 3, volumes[1]: 0}, counted)
        self.assertEqual({}, attachment_queries.count_attached([]))

    def test_list_of_volumes_is_one_statement(self):
        before = session.counters().statements
        found = attachment_queries.list_of_volumes([self.one, self.two, "none"])
        self.assertEqual(1, session.counters().statements - before)
        self.assertEqual([self.first, self.second], [row["id"] for row in found[self.one]])
        self.assertEqual([self.third], [row["id"] for row in found[self.two]])
        self.assertEqual([], found["none"])
        self.assertNotIn("connector", found[self.two][0])
        self.assertEqual({}, attachment_queries.list_of_volumes([]))


KEY, OTHER_KEY = "1" * 64, "2" * 64


class Case(databases.DatabaseCase):
    def attached(self, key=KEY, state="attached", volume=None, **values):
        volume = volume or db_rows.add_volume(multiattach=True)["id"]
        return db_rows.add_attachment(volume, state, connection_key=key, **values)

    def beside(self, *attachments, project=None):
        return attachment_queries.list_sharing(attachments, project)

    def users(self, attachment, project=None):
        keys = attachment_queries.connection_keys(attachment["id"], attachment["volume_id"])
        return [row["id"] for row in attachment_queries.list_users_of(keys, project)]


class ListSharingTest(Case):
    def test_list_sharing_returns_users_of_same_connection_across_volumes(self):
        first = self.attached()
        second = self.attached(volume=first["volume_id"])
        third = self.attached()
        self.attached(OTHER_KEY)
        ids = [item["id"] for item in (first, second, third)]
        expected = {attachment: [id_ for id_ in ids if id_ != attachment] for attachment in ids}
        self.assertEqual(expected, self.beside(first, second, third))

    def test_list_sharing_of_page_is_one_statement(self):
        page = [self.attached() for _item in range(5)]
        before = session.counters().statements
        self.beside(*page)
        self.assertEqual(1, session.counters().statements - before)

    def test_list_sharing_without_connection_returns_none(self):
        attachment_id = self.attached(None)
        self.attached(None)
        self.assertEqual({attachment_id["id"]: []}, self.beside(attachment_id))
        self.assertEqual({}, self.beside())

    def test_list_sharing_counts_certain_and_uncertain_users(self):
        attachment_id = self.attached()
        sharing = {
            self.attached(state=state.value)["id"]: state
            for state in set(AttachmentState) - {AttachmentState.HELD}
        }
        found = {sharing[item] for item in self.beside(attachment_id)[attachment_id["id"]]}
        expected = {"connecting", "connected", "attached", "withdrawing"}
        expected |= {"connect_unknown", "disconnect_failed"}
        self.assertEqual(expected, found)

    def test_list_sharing_with_project_returns_its_attachments_only(self):
        attachment_id = self.attached()
        self.attached(project_id="b" * 32)
        self.assertEqual(
            {attachment_id["id"]: []}, self.beside(attachment_id, project=db_rows.PROJECT)
        )
        self.assertEqual(1, len(self.beside(attachment_id)[attachment_id["id"]]))

    def test_list_sharing_returns_parents_of_connections(self):
        attachment_id = self.attached()
        other = self.attached(None, kind="legacy", connector=None)
        connection = {"kind": "connection", "volume": other["volume_id"], "state": "connected"}
        self.attached(parent_id=other["id"], **connection)
        self.attached(**{**connection, "volume": None})  # It has no parent.
        expected = {attachment_id["id"]: [other["id"]], other["id"]: [attachment_id["id"]]}
        self.assertEqual(expected, self.beside(attachment_id, other))
        self.assertEqual([attachment_id["id"], other["id"]], self.users(other))


class ListUsersTest(Case):
    def test_list_users_of_deleted_attachment_returns_others(self):
        attachment_id, other = self.attached(), self.attached()
        keys = attachment_queries.connection_keys(attachment_id["id"], attachment_id["volume_id"])
        db_rows.remove_attachment(attachment_id["id"])
        (left,) = attachment_queries.list_users_of(keys, None)
        self.assertEqual(other["id"], left["id"])
        self.assertNotIn("connector", left)

    def test_list_users_leaves_detaching_out(self):
        attachment_id = self.attached()
        self.attached(state="disconnecting")
        self.assertEqual([attachment_id["id"]], self.users(attachment_id))

    def test_list_users_with_project_returns_its_attachments_only(self):
        attachment_id, other = self.attached(), self.attached(project_id="b" * 32)
        self.assertEqual([attachment_id["id"]], self.users(attachment_id, db_rows.PROJECT))
        self.assertEqual([attachment_id["id"], other["id"]], self.users(attachment_id))

    def test_list_users_without_keys_returns_none(self):
        self.attached(None)
        self.assertEqual([], self.users(self.attached(None)))
