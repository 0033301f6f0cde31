# SPDX-License-Identifier: Apache-2.0
"""Events are stored in the transaction that causes them, and each event gets one revision."""

import datetime
import itertools
from unittest import mock

import sqlalchemy as sa

from attachd import context, exception, states
from attachd.db import models
from attachd.db.attachments import async_requests, attachment_store, events, legacy
from attachd.db.cluster.volume_leases import VolumeLeaseToken
from attachd.db.engine import session
from attachd.db.volumes import volume_store
from attachd.states import Event
from attachd.telemetry import tracing
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows

WHO = {"project_id": db_rows.PROJECT, "user_id": "u"}


class Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]

    def events(self):
        with session.reader() as connection:
            found = connection.execute(sa.select(models.events).order_by(models.events.c.id))
            return [dict(row._mapping) for row in found]

    def types(self):
        return [event["type"] for event in self.events()]

    def record(self, number, project_id=db_rows.PROJECT, **values):
        row = {"id": models.new_id(), "project_id": project_id, "volume_id": self.volume_id}
        for _ in range(number):
            with session.writer() as connection:
                events.record(connection, row, "reserved", **values)
        return row["id"]


class RecordTest(Case):
    def test_record_lifecycle_in_order_beyond_deletion(self):
        volume_lease = VolumeLeaseToken(self.volume_id, "us")
        row = attachment_store.reserve(self.volume_id, WHO)
        transitioned = attachment_store.transition(
            row["id"], self.volume_id, Event.CONNECT, volume_lease=volume_lease
        )
        attachment = transitioned.attachment
        attachment_store.transition_without_volume(
            attachment, Event.GRANTED, {}, attachment["generation"], volume_lease
        )
        attachment_store.complete(db_rows.get_attachment(row["id"]))
        started = attachment_store.transition(
            row["id"], self.volume_id, Event.DISCONNECT, volume_lease=volume_lease
        )
        attachment_store.finish_disconnect(started, volume_lease)
        found = events.list_of_attachment(row["id"], db_rows.PROJECT)
        expected = ["reserved", "connected", "attached", "deleted"]
        self.assertEqual(expected, [item["type"] for item in found])
        self.assertEqual({self.volume_id}, {item["volume_id"] for item in found})
        self.assertEqual([], events.list_of_attachment(row["id"], "b" * 32))
        self.assertEqual([1, 2, 3, 4], [item["revision"] for item in found])

    def test_events_of_attachment_keep_their_revisions_after_purge(self):
        first, second = self.record(2), self.record(1)
        (before,) = events.list_of_attachment(second, None)
        oldest = sa.update(models.events).where(models.events.c.attachment_id == first)
        with session.writer() as connection:
            connection.execute(oldest.values(created_at=datetime.datetime(2026, 1, 1)))  # noqa: DTZ001
        self.assertEqual(2, events.purge(models.now() - datetime.timedelta(days=1), 10))
        self.record(1)
        (after,) = events.list_of_attachment(second, None)
        self.assertEqual((3, 3), (before["revision"], after["revision"]))
        self.assertEqual([], events.list_of_attachment(first, None))

    def test_record_async_request_at_once(self):
        row = attachment_store.reserve(self.volume_id, WHO)
        async_requests.connect_shared(row["id"], self.volume_id, db_rows.CONNECTOR)
        async_requests.disconnect(row["id"], self.volume_id)
        self.assertEqual(["reserved", "connecting", "disconnecting"], self.types())
        self.assertEqual(db_rows.CONNECTOR["host"], self.events()[1]["details"]["host"])

    def test_record_failure_with_error(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "connecting")["id"]
        attachment_store.transition(
            attachment_id, self.volume_id, Event.CONNECT_LOST, {"error": "gone"}
        )
        (event,) = self.events()
        self.assertEqual(("connect_unknown", "gone"), (event["type"], event["details"]["error"]))

    def test_record_kept_device_as_kept_not_attached(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "withdrawing", agent="h")["id"]
        attachment_store.transition(attachment_id, self.volume_id, Event.REFUSE_DETACH)
        (event,) = self.events()
        self.assertEqual(("detach_refused", "h"), (event["type"], event["details"]["agent"]))

    def test_event_type_is_known_for_each_transition(self):
        for event, move in states.ATTACHMENT_TRANSITIONS.items():
            self.assertIn(events.event_type(event, move.target), events.TYPES, event)

    def test_record_of_invisible_row_adds_no_event(self):
        legacy.reserve(self.volume_id, db_rows.PROJECT, "u")
        db_rows.add_attachment(self.volume_id, "connecting", kind="connection")
        (connection,) = [
            attachment
            for attachment in db_rows.list_attachments(self.volume_id)
            if attachment["kind"] == "connection"
        ]
        attachment_store.transition(connection["id"], self.volume_id, Event.GRANTED)
        self.assertEqual([], self.events())

    def test_record_repeated_transition_once(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "connected", agent="h")["id"]
        for _ in range(2):
            attachment_store.complete(db_rows.get_attachment(attachment_id))
        for _ in range(2):
            attachment_store.transition(attachment_id, self.volume_id, Event.WITHDRAW)
        self.assertEqual(["attached", "withdrawing"], self.types())

    def test_record_of_refused_transition_adds_no_event(self):
        row = attachment_store.reserve(self.volume_id, WHO)
        with self.assertRaises(exception.InvalidTransition):
            attachment_store.transition(row["id"], self.volume_id, Event.GRANTED)
        with self.assertRaises(exception.VolumeNotAvailable):
            attachment_store.reserve(self.volume_id, {**WHO, "instance_uuid": "i"})
        self.assertEqual(["reserved"], self.types())

    def test_record_deletion_of_rows_with_volume(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "connect_failed")["id"]
        db_rows.change_volume(self.volume_id, state="deleting", status="deleting")
        volume_store.transition(self.volume_id, Event.DELETED)
        (event,) = self.events()
        self.assertEqual(("deleted", attachment_id), (event["type"], event["attachment_id"]))

    def test_record_caller_and_duration(self):
        asking = context.RequestContext(
            user_id="alice", project_id=db_rows.PROJECT, global_request_id="req-" + "1" * 36
        )
        with tracing.operation() as moment, tracing.step("grant"):
            pass
        with tracing.operation() as moment:
            with tracing.step("grant"):
                pass
            self.record(1)
        (event,) = self.events()
        details = event["details"]
        self.assertEqual(
            ("alice", asking.request_id, asking.global_request_id),
            tuple(details[name] for name in ("user_id", "request_id", "global_request_id")),
        )
        self.assertEqual(moment.began_at.isoformat(), details["began_at"])
        self.assertEqual(["grant"], [step["name"] for step in details["steps"]])
        self.assertGreaterEqual(details["seconds"], details["steps"][0]["seconds"])


class SequenceTest(Case):
    def test_assign_sequence_numbers_each_event_once(self):
        self.record(3)
        self.assertEqual((0, 0), events.sequence())
        self.assertEqual([], events.list_after(0, 10))
        self.assertEqual((3, 0), events.assign_sequence())
        self.record(2)
        self.assertEqual((5, 0), events.assign_sequence())
        self.assertEqual((5, 0), events.assign_sequence())
        self.assertEqual(
            [1, 2, 3, 4, 5], [event["revision"] for event in events.list_after(0, 10)]
        )
        self.assertEqual([3, 4], [item["revision"] for item in events.list_after(2, 2)])

    def test_assign_sequence_works_in_batches(self):
        some = mock.patch.multiple(events, _UNASSIGNED=events._UNASSIGNED.limit(2), BATCH=2)
        with some:
            self.record(5)
            self.assertEqual((5, 0), events.assign_sequence())

    def test_request_numbers_bounded_number_of_events(self):
        some = mock.patch.multiple(events, _UNASSIGNED=events._UNASSIGNED.limit(2), BATCH=2)
        with some:
            self.record(2 * events.MAX_BATCHES)
            last = self.record(1)
            self.assertEqual(2 * events.MAX_BATCHES, events.assign_sequence().assigned)
            self.record(2 * events.MAX_BATCHES)
            late = self.record(1)
            self.assertEqual(1, len(events.list_of_attachment(last, None)))
            with self.assertRaisesRegex(exception.Unavailable, "Try again"):
                self.record(2 * events.MAX_BATCHES)
                events.list_of_attachment(self.record(1), None)
            self.assertEqual(1, len(events.list_of_attachment(late, None)))

    def test_assign_sequence_concurrently_numbers_each_event_once(self):
        ids = [self.record(3) for _ in range(5)]
        done = concurrency.run_at_once(
            *[events.assign_sequence] * 6, *[lambda: self.record(2)] * 3
        )
        self.assertFalse([item for item in done if isinstance(item, Exception)])
        events.assign_sequence()
        found = events.list_after(0, 100)
        self.assertEqual(list(range(1, 22)), [item["revision"] for item in found])
        for attachment_id in ids:
            numbers = [item["id"] for item in found if item["attachment_id"] == attachment_id]
            self.assertEqual(sorted(numbers), numbers)

    def test_assign_sequence_includes_late_commit_with_low_id(self):
        """The number is drawn at the INSERT; SQLite has one writer, so it cannot happen there."""
        if self.kind == "sqlite":
            self.record(2)
            self.assertEqual((2, 0), events.assign_sequence())
            return
        row = {"id": models.new_id(), "project_id": "p", "volume_id": self.volume_id}
        with session.writer() as late:
            events.record(late, row, "reserved")
            self.record(1)
            self.assertEqual((1, 0), events.assign_sequence())
            seen = events.list_after(0, 10)
        self.assertEqual((2, 0), events.assign_sequence())
        self.assertEqual([row["id"]], [item["attachment_id"] for item in events.list_after(1, 10)])
        self.assertLess(events.list_after(1, 10)[0]["id"], seen[0]["id"])

    def test_list_after_with_project_returns_its_events_only(self):
        self.record(1)
        self.record(2, "b" * 32)
        events.assign_sequence()
        self.assertEqual([2, 3], [e["revision"] for e in events.list_after(0, 10, "b" * 32)])

    def test_list_after_with_project_finds_its_events_by_index(self):
        self._add_numbered(1, 3000, "b" * 32)
        self._add_numbered(3001, 3, db_rows.PROJECT)
        with mock.patch.object(session, "fetch_all", wraps=session.fetch_all) as fetch_all:
            found = events.list_after(0, 10, db_rows.PROJECT)
        self.assertEqual([3001, 3002, 3003], [item["revision"] for item in found])
        self.assertIn("ix_events_project_id_revision", self._plan(fetch_all.call_args.args[0]))

    def _add_numbered(self, first, number, project_id):
        """Add events that have their revisions."""
        row = {"project_id": project_id, "volume_id": "v", "attachment_id": "a"}
        row |= {"type": "reserved", "details": {}}
        rows = [{**row, "revision": revision} for revision in range(first, first + number)]
        with session.writer() as connection:
            connection.execute(sa.insert(models.events), rows)

    def _plan(self, statement):
        """Return the text of the database's plan for a statement."""
        explain = "EXPLAIN QUERY PLAN" if self.kind == "sqlite" else "EXPLAIN"
        with session.writer() as connection:
            if self.kind != "sqlite":
                table = "TABLE events" if self.kind == "mariadb" else "events"
                connection.exec_driver_sql(f"ANALYZE {table}")
            text = statement.compile(connection, compile_kwargs={"literal_binds": True})
            plan = connection.exec_driver_sql(f"{explain} {text}")
            # MariaDB also names the indexes that it does not use.
            used = [row._mapping.get("key") or tuple(row) for row in plan]
        return str(used)


class PurgeTest(Case):
    def age(self, seconds, *numbers):
        table = models.events
        changed = sa.update(table).where(table.c.id.in_(numbers))
        past = models.now() - datetime.timedelta(seconds=seconds)
        with session.writer() as connection:
            connection.execute(changed.values(created_at=past))

    def test_purge_removes_oldest_and_stores_revision(self):
        self.record(4)
        first, second, *_ = [event["id"] for event in self.events()]
        self.age(100, first, second)
        before = models.now() - datetime.timedelta(seconds=50)
        self.assertEqual(1, events.purge(before, 1))
        self.assertEqual((4, 1), events.sequence())
        self.assertEqual(1, events.purge(before, 10))
        self.assertEqual(0, events.purge(before, 10))
        self.assertEqual((4, 2), events.sequence())
        self.assertEqual([3, 4], [event["revision"] for event in events.list_after(0, 10)])

    def test_purge_all_continues_sequence(self):
        self.record(2)
        later = models.now() + datetime.timedelta(seconds=5)
        self.assertEqual(2, events.purge(later, 10))
        self.record(1)
        self.assertEqual((3, 2), events.assign_sequence())
        self.assertEqual([3], [item["revision"] for item in events.list_after(2, 10)])

    def test_purge_ends_at_one_revision_despite_wrong_clocks(self):
        self.record(3)
        events.assign_sequence()
        self.age(100, self.events()[1]["id"])
        before = models.now() - datetime.timedelta(seconds=50)
        self.assertEqual(2, events.purge(before, 10))
        self.assertEqual([3], [event["revision"] for event in events.list_after(0, 10)])
        gaps = itertools.pairwise(event["revision"] for event in events.list_after(0, 10))
        self.assertTrue(all(b == a + 1 for a, b in gaps))
