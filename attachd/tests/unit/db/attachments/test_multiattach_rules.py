# SPDX-License-Identifier: Apache-2.0
"""Whether one more may attach a volume and write to it, on rows in a database of its own."""

import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.attachments import multiattach_rules, statements
from attachd.db.attachments import transitions as steps
from attachd.db.engine import session
from attachd.db.types import store as types
from attachd.tests.fixtures import databases, db_rows

SEVERAL = {"multiattach": "<is> True"}


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")
        CONF([], project="attachd", default_config_files=[])
        self.addCleanup(CONF.clear_override, "max_attachments_per_host", "manager")

    def volume(self, specs=SEVERAL, **values):
        kind = types.create({"name": models.new_id(), "extra_specs": specs})
        several = specs.get("multiattach") == "<is> True"
        values = {"volume_type_id": kind["id"], "multiattach": several, **values}
        return db_rows.add_volume(**values)["id"]

    def locked(self, connection, volume_id):
        wanted = statements.LOCK_VOLUME_TO_RESERVE
        return steps.lock_volume(connection, volume_id, wanted)


class JoinTest(Case):
    def join(self, volume_id, server=None, denied_rule=None, kind="attachment"):
        new = {"id": "new", "kind": kind, "state": "reserved", "instance_uuid": server}
        new["user_id"] = None
        if kind == "hold":
            new["state"] = "held"
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            there = steps.list_rows(connection, volume_id)
            multiattach_rules.check_reserve(volume, there, new, denied_rule)

    def test_any_number_may_have_a_multiattach_volume(self):
        volume = self.volume()
        for state in ("attached", "reserved", "connecting", "disconnecting"):
            db_rows.add_attachment(volume, state)
            self.join(volume)

    def test_a_second_one_is_refused_an_ordinary_volume_unless_it_is_the_same_server(self):
        volume = self.volume({})
        mine = db_rows.add_attachment(volume, instance_uuid="s")["id"]
        with self.assertRaisesRegex(exception.VolumeNotAvailable, f"held by attachment {mine}"):
            self.join(volume, "other")
        self.join(volume, "s")

    def test_whoever_must_not_be_one_of_several_may_be_the_only_one(self):
        volume = self.volume()
        self.join(volume, denied_rule="volume:multiattach")
        db_rows.add_attachment(volume, instance_uuid="s")
        with self.assertRaisesRegex(exception.Forbidden, "volume:multiattach"):
            self.join(volume, "other", "volume:multiattach")
        self.join(volume, "s", "volume:multiattach")

    def test_a_type_says_how_many(self):
        volume = self.volume({**SEVERAL, "max_attachments": "2"})
        db_rows.add_attachment(volume, "attached", instance_uuid="s")
        db_rows.add_attachment(volume, "attached", instance_uuid="s")
        db_rows.add_attachment(volume, "connect_failed", instance_uuid="x")
        self.join(volume, "other")
        db_rows.add_attachment(volume, "reserved")
        full = f"Volume {volume} has 2 attachments, and may have 2 .max_att"
        for server in ("other", "s"):
            with self.assertRaisesRegex(exception.AttachmentLimitExceeded, full):
                self.join(volume, server)

    def test_a_server_that_moves_counts_once_and_not_for_more_than_that(self):
        volume = self.volume({**SEVERAL, "max_attachments": "1"})
        db_rows.add_attachment(volume, "attached", instance_uuid="s")
        self.join(volume, "s", "volume:multiattach")
        db_rows.add_attachment(volume, "attached", instance_uuid="s")
        with self.assertRaises(exception.AttachmentLimitExceeded):
            self.join(volume, "s")
        with self.assertRaises(exception.Forbidden):
            self.join(volume, "s", "volume:multiattach")

    def test_a_hold_counts_as_well_and_its_connection_does_not_count_twice(self):
        volume = self.volume({**SEVERAL, "max_attachments": "2"})
        db_rows.add_attachment(volume, "held")
        db_rows.add_attachment(volume, "connected", kind="connection")
        self.join(volume, kind="hold")
        db_rows.add_attachment(volume, "held")
        with self.assertRaisesRegex(exception.AttachmentLimitExceeded, "has 2 attachments"):
            self.join(volume, kind="hold")

    def test_a_connection_does_not_count_with_the_hold_of_another_user(self):
        volume = self.volume({**SEVERAL, "max_attachments": "2"})
        db_rows.add_attachment(volume, "held", user_id="other")
        db_rows.add_attachment(volume, "connected", kind="connection")
        with self.assertRaisesRegex(exception.AttachmentLimitExceeded, "has 2 attachments"):
            self.join(volume, "s")


class ConnectTest(Case):
    def connect(self, volume_id, host="h", **values):
        new = {"id": "new", "kind": "attachment", "instance_uuid": None, "host": host, **values}
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            there = steps.list_rows(connection, volume_id)
            multiattach_rules.check_connect_limits(connection, volume, new, there)

    def test_a_type_says_how_many_may_be_on_one_host(self):
        volume = self.volume({**SEVERAL, "max_attachments_per_host": "1"})
        db_rows.add_attachment(volume, "attached", kind="legacy", host="h")
        db_rows.add_attachment(volume, "connect_failed", host="h")
        db_rows.add_attachment(volume, "attached", host="other")
        self.connect(volume)
        db_rows.add_attachment(volume, "disconnect_failed", host="h")
        with self.assertRaisesRegex(
            exception.AttachmentLimitExceeded, "on host h has 1 .*may have 1"
        ):
            self.connect(volume)
        self.connect(volume, "third")

    def test_a_host_has_a_limit_over_all_volumes(self):
        CONF.set_override("max_attachments_per_host", 2, "manager")
        for _ in range(2):
            self.connect(self.volume())
            db_rows.add_attachment(self.volume({}), "attached", host="h")
        with self.assertRaisesRegex(
            exception.AttachmentLimitExceeded, "Host h has 2 .*may have 2 .*manager"
        ):
            self.connect(self.volume())
        self.connect(self.volume(), "other")

    def test_without_a_limit_nothing_is_counted(self):
        db_rows.add_attachment(self.volume({}), "attached", host="h")
        volume = self.volume()
        before = session.counters()[0]
        self.connect(volume)
        self.assertEqual(2, session.counters()[0] - before)


class ModeTest(Case):
    def mode(self, volume_id, asked=None, **mine):
        mine = {"id": "new", "instance_uuid": None, "parent_id": None, **mine}
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            there = steps.list_rows(connection, volume_id)
            return multiattach_rules.decide_mode(volume, mine, there, asked)

    def refused(self, why, volume_id, **mine):
        self.assertEqual("ro", self.mode(volume_id, **mine))
        self.assertEqual("ro", self.mode(volume_id, "ro", **mine))
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, f"{why}.*Attach it with mode 'ro'"
        ):
            self.mode(volume_id, "rw", **mine)

    def test_without_a_word_all_write(self):
        volume = self.volume()
        db_rows.add_attachment(volume, "attached", mode="rw")
        self.assertEqual(["rw", "rw", "ro"], [self.mode(volume, x) for x in (None, "rw", "ro")])

    def test_a_volume_without_a_type_is_written(self):
        self.assertEqual("rw", self.mode(db_rows.add_volume()["id"], "rw"))

    def test_a_read_only_volume_has_no_writer(self):
        self.refused("it is read-only", self.volume(admin_metadata={"readonly": "True"}))
        self.assertEqual("rw", self.mode(self.volume(admin_metadata={"readonly": "False"})))

    def test_a_read_only_type_has_no_writer(self):
        self.refused("its type says mode='RO'", self.volume({"mode": "RO"}))

    def test_a_shared_read_only_type_has_one_writer(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        db_rows.add_attachment(volume, "attached", mode="ro")
        db_rows.add_attachment(volume, "connect_failed", mode="rw")
        self.assertEqual("rw", self.mode(volume))
        writer = db_rows.add_attachment(volume, "connected", mode="rw")
        self.refused(f"one writer, .* attachment {writer['id']}", volume)
        db_rows.change_attachment(writer["id"], state="disconnect_failed")
        self.refused("one writer", volume)
        db_rows.remove_attachment(writer["id"])
        self.assertEqual("rw", self.mode(volume, "rw"))

    def test_a_reservation_for_a_writer_counts(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        db_rows.add_attachment(volume, mode="rw")
        self.refused("one writer", volume)

    def test_a_server_that_moves_goes_on_writing(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        db_rows.add_attachment(volume, "attached", mode="rw", instance_uuid="s")
        self.assertEqual("rw", self.mode(volume, "rw", instance_uuid="s"))
        self.refused("one writer", volume, instance_uuid="other")
        db_rows.add_attachment(volume, "attached", mode="rw", instance_uuid="s")
        self.refused("one writer", volume, instance_uuid="s")

    def test_a_connection_and_what_it_serves_are_one_writer(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        legacy = db_rows.add_attachment(volume, "attached", kind="legacy", mode="rw")["id"]
        self.assertEqual("rw", self.mode(volume, parent_id=legacy))
        db_rows.add_attachment(volume, "connected", kind="connection", mode="rw", parent_id=legacy)
        self.assertEqual("rw", self.mode(volume, "rw", id=legacy))
        self.refused("one writer", volume)


class StatementTest(Case):
    def test_what_is_locked_to_join_tells_the_types_extra_specs(self):
        for volume, expected in (
            (self.volume({"mode": "RO"}), {"mode": "RO"}),
            (db_rows.add_volume()["id"], None),
        ):
            with session.writer() as connection:
                self.assertEqual(expected, self.locked(connection, volume)["type_specs"])
                plain = steps.lock_volume(connection, volume)
        self.assertNotIn("type_specs", plain)
        self.assertIsInstance(statements.LOCK_VOLUME_TO_CONNECT.statement, sa.Select)
