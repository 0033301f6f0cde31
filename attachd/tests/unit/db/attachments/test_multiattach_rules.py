# SPDX-License-Identifier: Apache-2.0
"""Rules for one more attachment of a volume, and for its mode."""

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


class ReserveTest(Case):
    def join(self, volume_id, server=None, denied_rule=None, kind="attachment"):
        new = {"id": "new", "kind": kind, "state": "reserved", "instance_uuid": server}
        new["user_id"] = None
        if kind == "hold":
            new["state"] = "held"
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            existing = steps.list_rows(connection, volume_id)
            multiattach_rules.check_reserve(volume, existing, new, denied_rule)

    def test_reserve_of_multiattach_volume_is_unlimited(self):
        volume = self.volume()
        for state in ("attached", "reserved", "connecting", "disconnecting"):
            db_rows.add_attachment(volume, state)
            self.join(volume)

    def test_reserve_of_ordinary_volume_twice_is_refused_except_same_server(self):
        volume = self.volume({})
        attachment = db_rows.add_attachment(volume, instance_uuid="s")["id"]
        with self.assertRaisesRegex(
            exception.VolumeNotAvailable, f"held by attachment {attachment}"
        ):
            self.join(volume, "other")
        self.join(volume, "s")

    def test_reserve_with_denied_rule_succeeds_for_first_holder_only(self):
        volume = self.volume()
        self.join(volume, denied_rule="volume:multiattach")
        db_rows.add_attachment(volume, instance_uuid="s")
        with self.assertRaisesRegex(exception.Forbidden, "volume:multiattach"):
            self.join(volume, "other", "volume:multiattach")
        self.join(volume, "s", "volume:multiattach")

    def test_reserve_beyond_limit_of_type_is_refused(self):
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

    def test_reserve_counts_moving_server_once(self):
        volume = self.volume({**SEVERAL, "max_attachments": "1"})
        db_rows.add_attachment(volume, "attached", instance_uuid="s")
        self.join(volume, "s", "volume:multiattach")
        db_rows.add_attachment(volume, "attached", instance_uuid="s")
        with self.assertRaises(exception.AttachmentLimitExceeded):
            self.join(volume, "s")
        with self.assertRaises(exception.Forbidden):
            self.join(volume, "s", "volume:multiattach")

    def test_reserve_counts_hold_with_its_connection_once(self):
        volume = self.volume({**SEVERAL, "max_attachments": "2"})
        db_rows.add_attachment(volume, "held")
        db_rows.add_attachment(volume, "connected", kind="connection")
        self.join(volume, kind="hold")
        db_rows.add_attachment(volume, "held")
        with self.assertRaisesRegex(exception.AttachmentLimitExceeded, "has 2 attachments"):
            self.join(volume, kind="hold")

    def test_reserve_counts_connection_and_hold_of_other_user_twice(self):
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
            existing = steps.list_rows(connection, volume_id)
            multiattach_rules.check_connect_limits(connection, volume, new, existing)

    def test_connect_beyond_limit_per_host_is_refused(self):
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

    def test_connect_beyond_limit_of_host_over_all_volumes_is_refused(self):
        CONF.set_override("max_attachments_per_host", 2, "manager")
        for _ in range(2):
            self.connect(self.volume())
            db_rows.add_attachment(self.volume({}), "attached", host="h")
        with self.assertRaisesRegex(
            exception.AttachmentLimitExceeded, "Host h has 2 .*may have 2 .*manager"
        ):
            self.connect(self.volume())
        self.connect(self.volume(), "other")

    def test_connect_without_limit_counts_nothing(self):
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
            existing = steps.list_rows(connection, volume_id)
            return multiattach_rules.decide_mode(volume, mine, existing, asked)

    def refused(self, why, volume_id, **mine):
        self.assertEqual("ro", self.mode(volume_id, **mine))
        self.assertEqual("ro", self.mode(volume_id, "ro", **mine))
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, f"{why}.*Attach it with mode 'ro'"
        ):
            self.mode(volume_id, "rw", **mine)

    def test_mode_by_default_is_rw(self):
        volume = self.volume()
        db_rows.add_attachment(volume, "attached", mode="rw")
        self.assertEqual(["rw", "rw", "ro"], [self.mode(volume, x) for x in (None, "rw", "ro")])

    def test_mode_without_type_is_rw(self):
        self.assertEqual("rw", self.mode(db_rows.add_volume()["id"], "rw"))

    def test_mode_of_read_only_volume_is_ro(self):
        self.refused("it is read-only", self.volume(admin_metadata={"readonly": "True"}))
        self.assertEqual("rw", self.mode(self.volume(admin_metadata={"readonly": "False"})))

    def test_mode_of_read_only_type_is_ro(self):
        self.refused("its type says mode='RO'", self.volume({"mode": "RO"}))

    def test_mode_of_shared_read_only_type_is_rw_for_one(self):
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

    def test_mode_with_reservation_of_writer_is_ro(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        db_rows.add_attachment(volume, mode="rw")
        self.refused("one writer", volume)

    def test_mode_of_moving_server_stays_rw(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        db_rows.add_attachment(volume, "attached", mode="rw", instance_uuid="s")
        self.assertEqual("rw", self.mode(volume, "rw", instance_uuid="s"))
        self.refused("one writer", volume, instance_uuid="other")
        db_rows.add_attachment(volume, "attached", mode="rw", instance_uuid="s")
        self.refused("one writer", volume, instance_uuid="s")

    def test_mode_counts_connection_and_parent_as_one_writer(self):
        volume = self.volume({**SEVERAL, "mode": "RO"})
        legacy = db_rows.add_attachment(volume, "attached", kind="legacy", mode="rw")["id"]
        self.assertEqual("rw", self.mode(volume, parent_id=legacy))
        db_rows.add_attachment(volume, "connected", kind="connection", mode="rw", parent_id=legacy)
        self.assertEqual("rw", self.mode(volume, "rw", id=legacy))
        self.refused("one writer", volume)


class StatementTest(Case):
    def test_lock_volume_to_reserve_reads_type_specs(self):
        for volume, expected in (
            (self.volume({"mode": "RO"}), {"mode": "RO"}),
            (db_rows.add_volume()["id"], None),
        ):
            with session.writer() as connection:
                self.assertEqual(expected, self.locked(connection, volume)["type_specs"])
                plain = steps.lock_volume(connection, volume)
        self.assertNotIn("type_specs", plain)
        self.assertIsInstance(statements.LOCK_VOLUME_TO_CONNECT.statement, sa.Select)
