# SPDX-License-Identifier: Apache-2.0
"""Tests of the cost of lists with 50,000 volumes, 100,000 attachments and 100,000 events.

Durations depend on the machine.  The tests count statements, and the rows that the server reads
for them.
"""

from pathlib import Path
import unittest
from unittest import mock

import yaml

from attachd.api import filter_register, policy_rules
from attachd.api import microversions as mv
from attachd.api.attachments import handlers as attachment_lists
from attachd.api.volumes import handlers as volume_lists
from attachd.conf import CONF
from attachd.db.attachments import backend_attachments
from attachd.db.engine import session
from attachd.db.volumes import volume_queries
from attachd.tests.fixtures import api_context, large_database
from attachd.tests.selection import full_only

PAGE = 1000
ALL = {"all_tenants": "1"}
MOST_STATEMENTS = 3

_FILTERS = yaml.safe_load((Path(__file__).parent / "scale_filters.yaml").read_text("utf-8"))
VOLUME_FILTERS, ATTACHMENT_FILTERS = _FILTERS["volumes"], _FILTERS["attachments"]
OWN_ATTACHMENT_FILTERS = _FILTERS["own_attachments"]
EMPTY = frozenset({"migration_status", "group_id", "consumes_quota"})
"""Filters that are answered without a look at the table, as all volumes have the same."""
FEW = {"name": 5, "metadata": 25, "user_id": 100, "project_id": 100, "id": 1, "status": 500}
"""Filters of volumes that find so many, and should not read much more."""
FEW_ATTACHMENTS = {"volume_id": 2, "instance_id": 10, "attached_host": 100, "project_id": 200}


class Case(unittest.TestCase):
    """A database of many rows, shared by the tests of a class, which change nothing."""

    kind = "mariadb"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        CONF([], project="attachd", default_config_files=[])
        cls.owner = unittest.TestCase()
        cls.addClassCleanup(cls.owner.doCleanups)
        large_database.use(cls.owner, cls.kind)
        policy_rules.reset()
        cls.addClassCleanup(policy_rules.reset)
        cls.member = api_context.make_context(project=large_database.LARGE_PROJECT)
        cls.admin = api_context.make_context(
            *api_context.ADMIN, project=large_database.LARGE_PROJECT
        )
        cls.ids = {
            "volume": cls.scalar("SELECT id FROM volumes WHERE name = 'disk-777' ORDER BY id"),
            "type": cls.scalar("SELECT id FROM volume_types ORDER BY id"),
            "server": cls.scalar("SELECT instance_uuid FROM attachments ORDER BY id"),
            "small_project": large_database.SMALL_PROJECT,
            "user": large_database.USER,
        }

    @staticmethod
    def scalar(statement):
        with session.reader() as connection:
            return connection.exec_driver_sql(f"{statement} LIMIT 1").scalar()

    def volumes(self, ctx, **query):
        answer = volume_lists.detail(ctx, query, mv.LATEST, api_context.make_links())
        return answer["volumes"]

    def attachments(self, ctx, **query):
        answer = attachment_lists.detail(ctx, query, mv.LATEST, api_context.make_links())
        return answer["attachments"]

    def deleted(self, ctx, **query):
        with mock.patch.object(ctx, "attachd_version", mv.ATTACHD_1_1):
            query = {**query, "deleted": "true"}
            answer = attachment_lists.detail(ctx, query, mv.LATEST, api_context.make_links())
        return answer["attachments"]

    def deleted_markers(self, condition=""):
        """Return the deleted attachments after which a middle and the last full page begin."""
        return self.markers(
            f"(SELECT attachment_id AS id, created_at, id AS number FROM events "
            f"WHERE type = 'deleted' {condition}) AS deleted",
            "created_at DESC, number DESC",
        )

    def lists(self):
        """Yield who may list what, with the table and the condition of its rows."""
        own = f"WHERE project_id = '{large_database.LARGE_PROJECT}'"
        for list_ in (self.volumes, self.attachments):
            table = list_.__name__
            yield f"{table} of a project", list_, self.member, {}, f"{table} {own}"
            yield f"all {table}", list_, self.admin, ALL, table

    def markers(self, rows, order="created_at DESC, id DESC"):
        """Return the ids after which the second, a middle and the last full page begin."""
        with session.reader() as connection:
            found = connection.exec_driver_sql(f"SELECT id FROM {rows} ORDER BY {order}")
            ids = list(found.scalars())
        return [ids[PAGE - 1], ids[len(ids) // 2], ids[-PAGE - 1]]

    def filled(self, text):
        for name, identity in self.ids.items():
            text = text.replace(f"{{{name}}}", identity)
        return text


@full_only("scale")
class Pages(Case):
    def test_page_of_1000_volumes_needs_three_statements(self):
        for claim, list_, ctx, query, rows in self.lists():
            for marker in [None, *self.markers(rows)]:
                asked = {**query, **({"marker": marker} if marker else {})}
                with self.subTest(claim, marker=marker):
                    before = session.counters().statements
                    found = list_(ctx, **asked)
                    self.assertEqual(PAGE, len(found))
                    sent = session.counters().statements - before
                    self.assertLessEqual(sent, MOST_STATEMENTS)

    def test_page_of_volumes_shows_the_data_of_each_volume(self):
        (first, *_others) = self.volumes(self.member)
        self.assertEqual(2, len(first["attachments"]))
        self.assertEqual(
            {first["id"]}, {attachment["volume_id"] for attachment in first["attachments"]}
        )
        self.assertRegex(first["volume_type"], r"^type-\d$")


class OnMariadb(Pages):
    """What the server reads for a page, and how it finds what a filter leaves."""

    def read(self, list_, ctx, query):
        with large_database.count_row_reads() as count:
            found = list_(ctx, **query)
        return count[0], len(found)

    def test_page_reads_same_row_count_at_any_position(self):
        for claim, list_, ctx, query, rows in self.lists():
            first, _ = self.read(list_, ctx, query)
            for marker in self.markers(rows):
                with self.subTest(claim, marker=marker):
                    cost, found = self.read(list_, ctx, {**query, "marker": marker})
                    self.assertEqual(PAGE, found)
                    self.assertLess(cost, 1.2 * first + 20)

    def test_page_in_descending_order_reads_same_row_count_at_any_position(self):
        for claim, list_, ctx, query, rows in self.lists():
            asked = {**query, "sort": "created_at:asc"}
            first, _ = self.read(list_, ctx, asked)
            for marker in self.markers(rows, "created_at, id"):
                with self.subTest(claim, marker=marker):
                    cost, _ = self.read(list_, ctx, {**asked, "marker": marker})
                    self.assertLess(cost, 1.2 * first + 20)

    def test_page_in_order_without_index_reads_same_row_count(self):
        sorts = ("name:asc", "size:desc", "status:asc", "updated_at:desc", "id:asc")
        for claim, list_, ctx, query, rows in self.lists():
            if list_ != self.volumes:
                continue
            for sort in sorts:
                asked = {**query, "sort": sort}
                first, _ = self.read(list_, ctx, asked)
                for marker in self.markers(rows):
                    with self.subTest(claim, sort=sort, marker=marker):
                        cost, _ = self.read(list_, ctx, {**asked, "marker": marker})
                        self.assertLess(cost, 1.2 * first + 20)

    def test_page_with_filter_reads_same_row_count_at_any_position(self):
        for asked in ({"status": "in-use"}, {"bootable": "true"}, {"availability_zone": "zone-1"}):
            first, _ = self.read(self.volumes, self.member, asked)
            for marker in self.markers(
                f"volumes WHERE project_id = '{large_database.LARGE_PROJECT}'"
            ):
                with self.subTest(asked, marker=marker):
                    cost, _ = self.read(self.volumes, self.member, {**asked, "marker": marker})
                    self.assertLess(cost, 1.2 * first + 20)

    def test_page_of_backend_reads_volumes_of_page(self):
        backend, page, after = "storage-7@fast", 100, ""
        with mock.patch.object(volume_queries, "PAGE", page):
            for _ in range(3):
                with large_database.count_row_reads() as count:
                    ids = volume_queries.list_ids(backend, after)
                    rows = backend_attachments.list_without_agent(ids)
                with self.subTest(after=after):
                    self.assertEqual(page, len(ids))
                    self.assertLessEqual(len(rows), 2 * page)
                    # Of each volume an entry of an index, and of each of its two attachments
                    # itself, the volume, and what a driver gets of its type.
                    self.assertLess(count[0], 15 * page)
                after = ids[-1]

    def test_page_of_deleted_reads_same_row_count_at_any_position(self):
        own = f"AND project_id = '{large_database.LARGE_PROJECT}'"
        for ctx, query, condition in ((self.member, {}, own), (self.admin, ALL, "")):
            # Of each attachment its deletion, and then whether a later event has its id.
            for marker in [None, *self.deleted_markers(condition)]:
                with self.subTest(condition, marker=marker):
                    asked = {**query, **({"marker": marker} if marker else {})}
                    cost, found = self.read(self.deleted, ctx, asked)
                    self.assertEqual(PAGE, found)
                    self.assertLess(cost, 6 * PAGE)
                    self.assert_indexed(self.plans(self.deleted, ctx, asked))

    def test_deleted_of_a_volume_or_time_reads_few_rows(self):
        volume = self.scalar("SELECT volume_id FROM events WHERE type = 'deleted'")
        since = {"detached_at": "lt:2026-01-01T00:01:00"}
        for ctx, query in ((self.member, {}), (self.admin, ALL)):
            for asked in ({"volume_id": volume}, since):
                with self.subTest(asked, everywhere=bool(query)):
                    cost, _found = self.read(self.deleted, ctx, {**query, **asked})
                    self.assertLess(cost, 200)

    def test_filter_with_few_matches_reads_few_rows(self):
        cases = [
            (self.volumes, VOLUME_FILTERS, FEW, 12),
            (self.attachments, ATTACHMENT_FILTERS, FEW_ATTACHMENTS, 4),
        ]
        for list_, samples, few, item in cases:
            for name, expected in few.items():
                with self.subTest(name, list=list_.__name__):
                    query = {**ALL, name: self.filled(samples[name])}
                    cost, found = self.read(list_, self.admin, query)
                    self.assertEqual(expected, found)
                    self.assertLess(cost, item * expected + 20)

    def test_counts_and_sums_read_each_row_once(self):
        def count(ctx, **query):
            asked = {**query, "with_count": "1", "limit": "1"}
            return [volume_lists.index(ctx, asked, mv.LATEST, api_context.make_links())["count"]]

        def summary(ctx, **query):
            return volume_lists.summary(ctx, query, mv.LATEST)["volume-summary"]

        for ctx, query, volumes in (
            (self.member, {}, large_database.VOLUMES // 2),
            (self.admin, ALL, large_database.VOLUMES),
        ):
            cost, _ = self.read(count, ctx, query)
            # An entry of an index of each, for its limit and for the count.
            self.assertLess(cost, 2 * volumes + 50)
            self.assertEqual([volumes], count(ctx, **query))
            # Of each volume its size, then its metadata, of which half of them have a pair; the
            # different ones are collected in a table that is read once more.
            cost, _ = self.read(summary, ctx, query)
            # How often that is depends a little on what the optimiser has guessed.
            self.assertLess(cost, 6 * volumes)
            self.assertEqual(volumes, summary(ctx, **query)["total_count"])

    def plans(self, list_, ctx, query):
        """Return how the statement that has the filters finds its rows."""
        with large_database.record_statements() as sent:
            list_(ctx, **query)
        # One before it may have checked that it does not examine too many.
        filtered = next(item for item in sent if "ORDER BY" in item[0])
        return large_database.explain(*filtered)

    def assert_indexed(self, plans):
        for plan in plans:
            if plan["table"] is None:  # the server sees that nothing passes
                continue
            self.assertIsNotNone(plan["key"], plan)
            self.assertNotEqual("ALL", plan["type"], plan)

    def test_filter_samples_include_every_filter(self):
        self.assertEqual(filter_register.VOLUME.known, VOLUME_FILTERS.keys() | EMPTY)
        self.assertEqual(filter_register.ATTACHMENT.known, ATTACHMENT_FILTERS.keys())

    def test_filters_use_an_index(self):
        cases = [(self.volumes, VOLUME_FILTERS), (self.attachments, ATTACHMENT_FILTERS)]
        everything = {**VOLUME_FILTERS, **ATTACHMENT_FILTERS}
        for list_, samples in cases:
            for name, text in samples.items():
                query = {name: self.filled(text)}
                with self.subTest(name, list=list_.__name__, who="admin"):
                    self.assert_indexed(self.plans(list_, self.admin, {**ALL, **query}))
                if name == "project_id":
                    continue
                # As members are asked about where the operator lets them use each filter.
                names = {"volume": tuple(everything), "attachment": tuple(everything)}
                with (
                    self.subTest(name, list=list_.__name__, who="member"),
                    mock.patch.object(
                        filter_register, "for_members", lambda item, n=names: n[item.name]
                    ),
                ):
                    self.assert_indexed(self.plans(list_, self.member, query))

    def test_time_filters_read_matching_rows_only(self):
        def own(ctx, **query):
            with mock.patch.object(ctx, "attachd_version", mv.ATTACHD_1_0):
                return attachment_lists.index(ctx, query, mv.LATEST, api_context.make_links())[
                    "attachments"
                ]

        found = {"created_at": 59, "updated_at": 59}
        for name, text in OWN_ATTACHMENT_FILTERS.items():
            for ctx, everywhere in ((self.member, {}), (self.admin, ALL)):
                with self.subTest(name, everywhere=everywhere):
                    query = {**everywhere, name: text}
                    self.assert_indexed(self.plans(own, ctx, query))
                    cost, count = self.read(own, ctx, query)
                    if everywhere:
                        self.assertEqual(found.get(name, 0), count)
                    # What was made an hour later may be as old, by another clock.
                    self.assertLess(cost, 2 * 3700)

    def test_filters_with_marker_use_an_index(self):
        marker = self.ids["volume"]
        for name, text in VOLUME_FILTERS.items():
            if name == "project_id":  # the marker is of another one
                continue
            query = {**ALL, name: self.filled(text), "marker": marker}
            with self.subTest(name):
                self.assert_indexed(self.plans(self.volumes, self.admin, query))


class OnPostgresql(Pages):
    kind = "postgresql"

    def nodes(self, list_, ctx, query):
        """Return the ways in which the first statement reads each of its tables."""
        with large_database.record_statements() as sent:
            list_(ctx, **query)
        statement, parameters = sent[0]
        with session.reader() as connection:
            explained = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            return "\n".join(explained.scalars())

    def test_pages_and_selective_filters_on_postgresql_use_an_index(self):
        large = ("volumes", "attachments", "volume_metadata")
        for claim, list_, ctx, query, rows in self.lists():
            for marker in self.markers(rows):
                plan = self.nodes(list_, ctx, {**query, "marker": marker})
                for table in large:
                    self.assertNotIn(f"Seq Scan on {table}", plan, claim)
        for list_, samples, few in (
            (self.volumes, VOLUME_FILTERS, FEW),
            (self.attachments, ATTACHMENT_FILTERS, FEW_ATTACHMENTS),
        ):
            for name in few:
                query = {**ALL, name: self.filled(samples[name])}
                plan = self.nodes(list_, self.admin, query)
                for table in large:
                    self.assertNotIn(f"Seq Scan on {table}", plan, name)


del Case, Pages
