# SPDX-License-Identifier: Apache-2.0
"""Tests of audits of a real tgtd and of real files: they repair each kind of difference."""

import contextlib
import itertools
import os
from pathlib import Path
import secrets
from unittest import mock
import uuid

import fixtures
import sqlalchemy as sa
import testtools

from attachd.db import audit, models
from attachd.db.engine import session
from attachd.drivers import base, file
from attachd.drivers.tgt.driver import TgtDriver
from attachd.manager import attach, backends, detach, volumes
from attachd.manager.audit import runner
from attachd.manager.audit.rules import MEANINGS, REPAIRED, Kind
from attachd.manager.backends import Backend
from attachd.manager.ownership.membership import Membership
from attachd.tests.fixtures import (
    conf_fixture,
    consistency,
    databases,
    db_rows,
    initiators,
    tgtd,
)
from attachd.tests.selection import full_only
from attachd.tests.unit.drivers import configured


def sql(statement):
    with session.writer() as connection:
        connection.execute(statement)


class AuditCase(testtools.TestCase):
    """A backend, volumes and attachments made by the manager's own verbs."""

    def use(self, driver):
        self.url = databases.use(self)
        conf_fixture.override(self, "state_path", self.useFixture(fixtures.TempDir()).path)
        conf_fixture.override(self, "host", "here")
        membership = Membership()
        membership.heartbeat()
        membership.start()
        self.addCleanup(membership.stop)
        self.backend = Backend("tgt", driver, membership)
        self.assertTrue(self.backend.setup(), self.backend.error)
        self.driver = driver

    def create_volume(self, size=1):
        row = db_rows.add_volume("creating", host="here@tgt#tgt", owner="here@tgt", size_gib=size)
        volumes.create(self.backend, row["id"])
        return db_rows.get_volume(row["id"])

    def attached(self, volume, connector, mode="rw"):
        row = db_rows.add_attachment(volume["id"], "reserved", asked_mode=mode)
        db_rows.change_volume(volume["id"], multiattach=True)
        attach.attach(self.backend, row["id"], volume["id"], connector)
        return db_rows.get_attachment(row["id"])

    def kinds(self):
        findings = runner.compare(self.backend)
        self.assertEqual([], findings.not_compared)
        return [difference.kind for difference in findings.differences]

    def repaired(self, *kinds):
        """Find exactly these, have them repaired, and find nothing more."""
        self.assertEqual(sorted(kinds), sorted(self.kinds()))
        findings = runner.repair(self.backend)
        self.assertEqual([], findings.not_compared)
        self.assertEqual(
            sorted((kind, REPAIRED if MEANINGS[kind].safe else "") for kind in kinds),
            sorted((difference.kind, difference.outcome) for difference in findings.differences),
        )
        left = [kind for kind in kinds if not MEANINGS[kind].safe]
        self.assertEqual(left, self.kinds())


class TgtTest(AuditCase):
    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.use(configured.driver(TgtDriver, **self.tgtd.options))
        self.host = self.useFixture(initiators.IscsiHost(self, "a"))
        self.other = self.useFixture(initiators.IscsiHost(self, "b"))
        self.volume = self.create_volume()
        self.own = self.attached(self.volume, self.host.connector)
        self.theirs = self.attached(self.volume, self.other.connector, "ro")
        self.data = secrets.token_bytes(64 * 1024)
        self.host.write(self.own["connection_info"], 2**20, self.data)
        self.assertEqual([], self.kinds())

    def repaired(self, *kinds):
        super().repaired(*kinds)
        self.assertEqual([], consistency.compare_with_tgt(self.url, self.tgtd))
        for item, host in ((self.own, self.host), (self.theirs, self.other)):
            if item:
                read = host.read(item["connection_info"], 2**20, len(self.data))
                self.assertEqual(self.data, read)

    def adm(self, operation, mode, *arguments):
        self.tgtd.adm("--op", operation, "--mode", mode, *arguments)

    def tid(self, suffix=""):
        name = f"{consistency.IQN_PREFIX}{self.volume['id']}{suffix}"
        return next(f"{target.tid}" for target in self.tgtd.targets() if target.name == name)

    def forget(self, row):
        sql(sa.delete(models.attachments).where(models.attachments.c.id == row["id"]))

    def test_audit_with_missing_attachment_row_revokes_the_export(self):
        info = self.theirs["connection_info"]
        self.other.log_in(info)
        self.forget(self.theirs)
        self.theirs = None
        self.repaired(Kind.ORPHAN_EXPORT)
        self.assertRaises(initiators.Refused, self.other.read, info, 0, 512)
        self.assertEqual([], self.tgtd.sessions())

    def test_audit_with_missing_row_of_one_host_revokes_only_that_host(self):
        third = self.useFixture(initiators.IscsiHost(self, "c"))
        row = self.attached(self.volume, third.connector)
        session = self.host.log_in(self.own["connection_info"])
        self.forget(row)
        self.repaired(Kind.EXTRA_HOST, Kind.EXTRA_PART)
        self.assertIn("wrote 512", self.host.command(session, "write -P 9 0 512"))
        self.assertRaises(initiators.Refused, third.read, row["connection_info"], 0, 512)

    def test_audit_with_removed_target_grants_it_again(self):
        self.adm("delete", "target", "--force", "--tid", self.tid())
        self.repaired(Kind.MISSING_EXPORT)

    def test_audit_with_removed_initiator_grants_it_again(self):
        name = self.host.connector["initiator"]
        self.adm("unbind", "target", "--tid", self.tid(), "--initiator-name", name)
        self.assertRaises(initiators.Refused, self.host.read, self.own["connection_info"], 0, 512)
        self.repaired(Kind.MISSING_EXPORT)

    def test_audit_with_removed_account_creates_it_again(self):
        user = self.own["connection_info"]["data"]["auth_username"]
        self.adm("delete", "account", "--user", user)
        self.repaired(Kind.MISSING_EXPORT)

    def test_audit_after_tgtd_restart_grants_all_exports(self):
        self.tgtd.restart()
        self.repaired(Kind.MISSING_EXPORT, Kind.MISSING_EXPORT)

    def test_audit_with_offline_target_sets_it_ready(self):
        self.adm("update", "target", "--tid", self.tid(), "--name", "state", "-v", "offline")
        self.repaired(Kind.MISSING_EXPORT)

    def test_audit_with_extra_initiator_and_account_removes_them(self):
        tid = self.tid()
        self.adm("bind", "target", "--tid", tid, "--initiator-name", "iqn.2026-01.test:thief")
        self.adm("new", "account", "--user", "thief", "--password", "p" * 16)
        self.adm("bind", "account", "--tid", tid, "--user", "thief")
        found = runner.repair(self.backend).differences
        self.assertEqual(
            [(Kind.EXTRA_HOST, REPAIRED), (Kind.EXTRA_PART, REPAIRED)],
            [(item.kind, item.outcome) for item in found],
        )
        self.assertEqual([], self.kinds())
        # It is not named as ours are, so it may be used elsewhere.
        self.assertEqual(
            ["account thief has no attachment"], consistency.compare_with_tgt(self.url, self.tgtd)
        )

    def test_audit_with_target_of_unknown_volume_removes_it(self):
        name = f"{consistency.IQN_PREFIX}{uuid.uuid4()}"
        self.adm("new", "target", "--tid", "77", "--targetname", name)
        self.repaired(Kind.ORPHAN_EXPORT)

    def test_audit_ignores_targets_with_another_prefix(self):
        self.adm("new", "target", "--tid", "77", "--targetname", "iqn.2026-01.test:theirs")
        self.adm("new", "target", "--tid", "78", "--targetname", f"{consistency.IQN_PREFIX}x")
        self.adm("new", "account", "--user", "attachd-sentinel.x.a", "--password", "p" * 16)
        self.adm("bind", "account", "--tid", "78", "--user", "attachd-sentinel.x.a")
        before = self.tgtd.targets()
        self.assertEqual(([], []), (self.kinds(), runner.repair(self.backend).differences))
        self.assertEqual(before, self.tgtd.targets())

    def test_audit_with_session_of_revoked_host_closes_it(self):
        third = self.useFixture(initiators.IscsiHost(self, "c"))
        row = self.attached(self.volume, third.connector)
        session = self.host.log_in(self.own["connection_info"])
        third.log_in(row["connection_info"])
        self.forget(row)
        name = third.connector["initiator"]
        self.adm("unbind", "target", "--tid", self.tid(), "--initiator-name", name)
        self.repaired(Kind.SESSION, Kind.EXTRA_PART)
        self.assertEqual([self.host.connector["initiator"]], self.tgtd.sessions())
        self.assertIn("wrote 512", self.host.command(session, "write -P 9 0 512"))

    def test_audit_with_wrong_mode_corrects_it(self):
        info = self.own["connection_info"]
        db_rows.change_attachment(self.own["id"], mode="ro")
        self.assertEqual({Kind.WRONG_MODE, Kind.MISSING_EXPORT}, set(self.kinds()))
        runner.repair(self.backend)
        self.assertEqual([], self.kinds())
        self.assertRaises(initiators.Refused, self.host.write, info, 0, b"x" * 512)
        reading = self.driver.grant(*self.export(self.own["id"]))
        self.assertEqual(self.data, self.host.read(reading, 2**20, len(self.data)))

    @staticmethod
    def export(attachment_id):
        row = db_rows.get_attachment(attachment_id)
        volume = audit.find_volume(row["volume_id"])
        return backends.volume_ref(volume), backends.export_with_secret(row)

    def test_audit_with_unbound_foreign_account_reports_it_only(self):
        user = str(uuid.uuid5(uuid.NAMESPACE_DNS, "lost"))
        self.adm("new", "account", "--user", user, "--password", "p" * 16)
        findings = runner.repair(self.backend)
        (found,) = findings.differences
        self.assertEqual(Kind.ORPHAN_ACCOUNT, found.kind)
        self.assertIn("Kept: another program may use it", found.outcome)
        self.assertIn(f"--user {user}", found.action)
        self.assertIn(user, self.tgtd.accounts())

    def test_audit_with_unbound_account_of_a_host_binds_it(self):
        detach.detach(self.backend, self.own["id"], self.volume["id"])
        user = self.own["connection_info"]["data"]["auth_username"]
        self.adm("new", "account", "--user", user, "--password", "p" * 16)
        self.own = self.attached(self.volume, self.host.connector)
        self.repaired()

    def test_audit_never_changes_volume_data(self):
        lost, strange, short = self.create_volume(), self.create_volume(), self.create_volume(2)
        folder = self.driver._volumes.folder
        (folder / lost["id"]).unlink()
        sql(sa.delete(models.volumes).where(models.volumes.c.id == strange["id"]))
        with (folder / short["id"]).open("r+b") as data:
            data.truncate(2**30)
        kinds = {Kind.VOLUME_WITHOUT_DATA, Kind.SIZE, Kind.DATA_WITHOUT_VOLUME}
        self.assertEqual(sorted(kinds), sorted(self.kinds()))
        found = runner.repair(self.backend).differences
        self.assertEqual(
            {kind: f"Kept: {MEANINGS[kind].kept}" for kind in kinds},
            {item.kind: item.outcome for item in found},
        )
        self.assertEqual(sorted(kinds), sorted(self.kinds()))
        self.assertEqual(2**30, (folder / strange["id"]).stat().st_size)
        self.assertEqual(2**30, (folder / short["id"]).stat().st_size)

    def test_audit_with_missing_volume_row_removes_its_exports(self):
        volume_id = self.volume["id"]
        sql(sa.delete(models.attachments).where(models.attachments.c.volume_id == volume_id))
        sql(sa.delete(models.volumes).where(models.volumes.c.id == volume_id))
        self.own = self.theirs = None
        path = self.driver._volumes.folder / volume_id
        kinds = [Kind.DATA_WITHOUT_VOLUME, Kind.ORPHAN_EXPORT, Kind.ORPHAN_EXPORT]
        self.assertEqual(sorted(kinds), sorted(self.kinds()))
        for item in runner.repair(self.backend).differences:
            self.assertIn("Kept: ", item.outcome)
        self.assertEqual(sorted(kinds), sorted(self.kinds()), "it may be another database")
        with path.open("rb") as data:
            data.seek(2**20)
            self.assertEqual(self.data, data.read(len(self.data)))

    def test_audit_with_wrong_volume_status_corrects_it(self):
        db_rows.change_volume(self.volume["id"], status="available", attach_status="detached")
        self.repaired(Kind.STATUS)

    def test_audit_with_tgtd_down_compares_nothing(self):
        self.tgtd.stop()
        findings = runner.compare(self.backend)
        self.assertEqual([], findings.differences)
        self.assertEqual(1, len(findings.not_compared))

    def test_audit_leaves_unfinished_operations_to_recovery(self):
        db_rows.change_attachment(self.own["id"], state="disconnecting")
        db_rows.change_volume(self.volume["id"], lease_holder=str(uuid.uuid4()))
        found = runner.repair(self.backend).differences
        self.assertEqual([Kind.INTERRUPTED], [item.kind for item in found])
        self.assertIn("Kept: a running manager", found[0].outcome)
        self.assertIn(f"{self.own['id']} is disconnecting", found[0].found)


class FileTest(AuditCase):
    loops = "never"

    def setUp(self):
        super().setUp()
        folder = self.useFixture(fixtures.TempDir()).path
        self.use(
            configured.driver(
                file.FileDriver,
                file_folder=folder,
                file_loop_devices=self.loops,
                file_devices_dir=f"{folder}/devices",
                file_hosts=["*"],
            )
        )
        self.addCleanup(self._clear)
        self.host = initiators.LocalHost("a")
        self.volume = self.create_volume()
        self.own = self.attached(self.volume, {"host": "a"})
        mode = "rw" if self.loops == "never" else "ro"
        self.theirs = self.attached(self.volume, {"host": "b"}, mode)
        self.host.write(self.own["connection_info"], 0, b"mine" * 128)
        self.assertEqual([], self.kinds())

    def _clear(self):
        for export in list(self.driver.list_exports()):
            with contextlib.suppress(Exception):
                self.driver.revoke_all_except(base.VolumeRef(export.volume_id, 1), [])

    def repaired(self, *kinds):
        super().repaired(*kinds)
        self.assertEqual(b"mine" * 128, self.host.read(self.own["connection_info"], 0, 512))

    def link(self, row):
        return self.driver._volumes.link_path(self.volume["id"], row["id"])

    def test_audit_with_missing_attachment_row_revokes_the_export(self):
        sql(sa.delete(models.attachments).where(models.attachments.c.id == self.theirs["id"]))
        db_rows.change_volume(self.volume["id"], status="attaching")
        info = self.theirs["connection_info"]
        kinds = [Kind.EXTRA_HOST] if self.loops == "never" else self.orphans_of_device
        self.repaired(*kinds)
        self.assertRaises(initiators.Refused, self.host.read, info, 0, 512)

    orphans_of_device = (Kind.ORPHAN_EXPORT, Kind.EXTRA_PART, Kind.EXTRA_PART)

    def test_audit_with_removed_link_creates_it_again(self):
        self.link(self.theirs).unlink()
        self.repaired(Kind.MISSING_EXPORT)

    def test_audit_passes_over_names_that_no_volume_and_no_attachment_has(self):
        folders = (self.driver._volumes.folder, self.link(self.own).parent)
        odd = (
            b"stranger.txt",
            b"\xff\xfe",
            b"two\nlines",
            b"\x1b[31mred",
            b"x" * 255,
            b"a b",
            "ü".encode(),
        )
        for folder, name in itertools.product(folders, odd):
            (folder / os.fsdecode(name)).touch()
        (self.driver._volumes.folder / "lost+found").mkdir()
        self.assertEqual([], self.kinds())
        self.assertEqual(1, len(self.driver.list_volumes()))

    def test_audit_lists_a_directory_once_however_many_files_hosts_have_made(self):
        for _ in range(50):
            (self.driver._volumes.folder / f"{uuid.uuid4()}").touch()
        with mock.patch.object(
            self.driver, "list_volumes", side_effect=self.driver.list_volumes
        ) as listed:
            self.assertEqual([Kind.DATA_WITHOUT_VOLUME] * 50, self.kinds())
        listed.assert_called_once_with()


@full_only("hosts")
class LoopDevicesTest(FileTest):
    loops = "always"

    def setUp(self):
        if file.loop.unavailable():
            self.skipTest("no loop devices")
        super().setUp()

    def test_audit_with_detached_loop_device_attaches_it_again(self):
        file.loop.detach(self.link(self.own))
        self.repaired(Kind.MISSING_EXPORT)

    def test_audit_with_loop_device_of_wrong_mode_replaces_it(self):
        db_rows.change_attachment(self.theirs["id"], mode="rw")
        info = self.theirs["connection_info"]
        self.assertRaises(initiators.Refused, self.host.write, info, 512, b"x" * 512)
        self.assertIn(Kind.WRONG_MODE, self.kinds())
        runner.repair(self.backend)
        self.assertEqual([], self.kinds())
        self.host.write(info, 512, b"x" * 512)

    def test_audit_with_busy_loop_device_reports_and_keeps_it(self):
        sql(sa.delete(models.attachments).where(models.attachments.c.id == self.theirs["id"]))
        device = Path(self.theirs["connection_info"]["data"]["device_path"])
        with device.open("rb"):
            found = runner.repair(self.backend).differences
            self.assertTrue(any("open on this host" in item.outcome for item in found), found)
        runner.repair(self.backend)
        self.assertEqual([], self.kinds())
