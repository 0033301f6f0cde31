# SPDX-License-Identifier: Apache-2.0
"""The decision about other holders, mode and limits; unit/manager/test_attach.py covers more."""

import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.attachments import attachment_rows, statements
from attachd.db.attachments import connect_rules as rules
from attachd.db.attachments.connect_rules import Action, Request
from attachd.db.engine import session
from attachd.db.types import type_store
from attachd.tests.fixtures import databases, db_rows

SEVERAL = {"multiattach": "<is> True"}


VOLUME = {
    "id": "v",
    "state": "ready",
    "multiattach": False,
    "admin_metadata": {},
    "type_specs": None,
    "any_host_closed": False,
}


def attachment(**values):
    return {
        "id": "a1",
        "state": "reserved",
        "kind": "attachment",
        "instance_uuid": "i",
        "connector": None,
        "host": None,
        "mode": None,
        "asked_mode": None,
        "parent_id": None,
        **values,
    }


def row(state="attached", kind="attachment", **values):
    return {"id": "a1", "state": state, "kind": kind, "instance_uuid": None, "host": "h", **values}


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")
        CONF([], project="attachd", default_config_files=[])
        self.addCleanup(CONF.clear_override, "max_attachments_per_host", "manager")

    def volume(self, specs=SEVERAL, **values):
        kind = type_store.create({"name": models.new_id(), "extra_specs": specs})
        several = specs.get("multiattach") == "<is> True"
        values = {"volume_type_id": kind["id"], "multiattach": several, **values}
        return db_rows.add_volume(**values)["id"]

    def locked(self, connection, volume_id):
        wanted = statements.LOCK_VOLUME_TO_RESERVE
        return attachment_rows.lock_volume(connection, volume_id, wanted)


class ReserveTest(Case):
    def join(self, volume_id, server=None, denied_rule=None, kind="attachment"):
        new = {"id": "new", "kind": kind, "state": "reserved", "instance_uuid": server}
        new["user_id"] = None
        if kind == "hold":
            new["state"] = "held"
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            existing = attachment_rows.list_rows(connection, volume_id)
            request = Request(Action.RESERVE, denied_rule=denied_rule)
            rules.decide(attachment_rows.LockedVolume(connection, volume, new, existing), request)

    def test_reserve_of_multiattach_volume_is_unlimited(self):
        volume = self.volume()
        for state in ("attached", "reserved", "connecting", "disconnecting"):
            db_rows.add_attachment(volume, state)
            self.join(volume)

    def test_reserve_of_ordinary_volume_twice_is_refused_except_same_server(self):
        volume = self.volume({})
        own = db_rows.add_attachment(volume, instance_uuid="s")["id"]
        with self.assertRaisesRegex(exception.VolumeNotAvailable, f"held by attachment {own}"):
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
        new = {"id": "new", "kind": "attachment", "state": "reserved", "instance_uuid": None,
               "connector": None, "mode": None, "project_id": db_rows.PROJECT,
               **values}  # fmt: skip
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            existing = attachment_rows.list_rows(connection, volume_id)
            request = Request(Action.CONNECT, {"host": host})
            rules.decide(attachment_rows.LockedVolume(connection, volume, new, existing), request)

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
    def mode(self, volume_id, asked=None, **own):
        own = {"id": "new", "instance_uuid": None, "parent_id": None, **own}
        with session.writer() as connection:
            volume = self.locked(connection, volume_id)
            existing = attachment_rows.list_rows(connection, volume_id)
            return rules.decide_mode(volume, own, existing, asked)

    def refused(self, why, volume_id, **own):
        self.assertEqual("ro", self.mode(volume_id, **own))
        self.assertEqual("ro", self.mode(volume_id, "ro", **own))
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, f"{why}.*Attach it with mode 'ro'"
        ):
            self.mode(volume_id, "rw", **own)

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
                plain = attachment_rows.lock_volume(connection, volume)
        self.assertNotIn("type_specs", plain)
        self.assertIsInstance(statements.LOCK_VOLUME_TO_CONNECT.statement, sa.Select)


class ColumnsTest(unittest.TestCase):
    def noted(self, connector, **own):
        locked = attachment_rows.LockedVolume(None, VOLUME, attachment(**own), [])
        return rules.decide(locked, Request(Action.CONNECT, connector)).columns()

    def test_columns_mode_is_rw_unless_ro_requested(self):
        for mode, connector, own in (
            ("rw", {}, {}),
            ("ro", {"mode": "ro"}, {}),
            ("rw", {"mode": "ro"}, {"asked_mode": "rw"}),
            ("rw", {"mode": "null"}, {}),
            ("ro", {}, {"state": "connecting", "mode": "ro"}),
            ("rw", {}, {"state": "connect_failed", "mode": "ro"}),
        ):
            with self.subTest(connector=connector, own=own):
                noted = self.noted({"host": "h", **connector}, **own)
                self.assertEqual(
                    (mode, "h", "na"), (noted["mode"], noted["host"], noted["mountpoint"])
                )


class OthersOfConnectionTest(unittest.TestCase):
    """Rows that count as other holders when os-initialize_connection opens a connection."""

    def others(self, rows, host, user_id):
        volume = {**VOLUME, "multiattach": True}
        current = {**attachment(id="new"), "user_id": user_id}
        request = Request(Action.INITIALIZE, {"host": host})
        return rules.other_holders(
            attachment_rows.LockedVolume(None, volume, current, rows), request
        )

    def test_other_holders_with_hold_of_user_returns_none(self):
        existing = [
            row("connected", "connection", host="elsewhere", parent_id=None, user_id="x"),
            row("held", "hold", user_id="other"),
        ]
        self.assertEqual([], self.others(existing, "h", "other"))
        self.assertEqual(existing[:1], self.others(existing, "elsewhere", "u"))
        self.assertEqual(existing[:1], self.others(existing, "h", "u"))

    def test_other_holders_with_used_hold_returns_holders(self):
        existing = [
            row("held", "hold", user_id="u"),
            row("connected", "connection", host="elsewhere", parent_id=None, user_id="u"),
        ]
        self.assertEqual(existing[1:], self.others(existing, "h", "u"))

    def test_other_holders_ignores_failed_connection(self):
        existing = [row("connect_failed", "connection", parent_id=None, user_id="x")]
        self.assertEqual([], self.others(existing, "h", "u"))

    def test_other_holders_with_waiting_legacy_attachment_returns_none(self):
        existing = [row(kind="legacy", host=None, user_id="u")]
        self.assertEqual([], self.others(existing, "h", "u"))
        self.assertEqual(existing, self.others(existing, "h", "other"))
        existing[0]["host"] = "h"
        self.assertEqual([], self.others(existing, "h", "other"))
        existing.append(
            row("connected", "connection", id="c", parent_id="a1", host="x", user_id="u")
        )
        self.assertEqual(existing, self.others(existing, "h", "u"))

    def test_other_holders_of_free_volume_returns_none(self):
        self.assertEqual([], self.others([row("connect_failed")], "x", "u"))
