# SPDX-License-Identifier: Apache-2.0
"""A host gets its desired state, and nothing else changes."""

import contextlib
import os
import threading
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.libvirt_secrets import LibvirtSecrets
from attachd.agent.mount import growth
from attachd.agent.mount.filesystem_state import FilesystemState
from attachd.agent.reconciler import Reconciler
from attachd.db.attachments import async_requests
from attachd.rpc import agent_manager_api, manager_api
from attachd.tests.fixtures import db_rows, fake_host
from attachd.tests.fixtures.backends import ProcessKilled
from attachd.tests.fixtures.fake_host import CREDENTIALS, INFO
from attachd.tests.wait import TIMEOUT

UNKNOWN = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001"
OTHER_INFO = {"driver_volume_type": "memory", "data": {"target": "t2"}}


class ReconcilerCase(fake_host.FakeHostCase):
    """A host with a reconciler."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(manager_api, "process_pending"))
        self.reconciler = self.make_reconciler()

    def make_reconciler(self):
        return Reconciler(self.make_host(), CREDENTIALS, Options(), slots=2)

    def attached(self, **values):
        """Return an attachment that has its device."""
        made = self.add(**values)
        self.reconciler.reconcile(made)
        self.connector.calls.clear()
        return made

    def withdraw(self, attachment_id):
        async_requests.withdraw(attachment_id, self.volume_id)

    def entries(self):
        return self.host.journal.list_entries()

    def seen(self, attachment_id):
        row = db_rows.get_attachment(attachment_id)
        return row["state"], row["device"], row["error"]


class SecretsTest(ReconcilerCase):
    """What has no device on a host may have a secret of libvirt; managers are asked once."""

    def setUp(self):
        super().setUp()
        self.secrets = mock.create_autospec(LibvirtSecrets, instance=True)
        spy = mock.patch.object(
            agent_manager_api, "desired_state", wraps=agent_manager_api.desired_state
        )
        self.desired_state = self.enterContext(spy)
        self.reconciler = Reconciler(
            self.make_host(), CREDENTIALS, Options(), slots=2, secrets=self.secrets
        )

    def test_secret_is_brought_about_with_its_desired_state(self):
        secrets = {"key": "QVE="}
        attachment_id = self.add(agent=None, secret_agent=fake_host.NAME, provider_secrets=secrets)
        self.reconciler.reconcile(attachment_id)
        (called_id, desired), _ = self.secrets.reconcile.call_args
        self.assertEqual(attachment_id, called_id)
        self.assertEqual(
            ("in-libvirt", secrets), (desired["target_state"], desired["connection_info"])
        )
        self.desired_state.assert_called_once()

    def test_unknown_attachment_may_have_a_stray_secret(self):
        self.reconciler.reconcile(UNKNOWN)
        self.secrets.reconcile.assert_called_once_with(UNKNOWN, None)
        self.desired_state.assert_called_once()

    def test_device_does_not_wait_for_libvirt(self):
        self.reconciler.reconcile(self.add())
        self.secrets.reconcile.assert_not_called()


class ConnectTest(ReconcilerCase):
    def test_reconcile_makes_and_reports_device(self):
        attachment_id = self.add()
        self.reconciler.reconcile(attachment_id)
        path = str(self.connector.path("t1"))
        self.assertEqual(("attached", path, None), self.seen(attachment_id))
        (entry,) = self.entries()
        found = (
            entry.attachment_id,
            entry.owner,
            entry.step,
            entry.device.path,
            entry.connector_type,
        )
        self.assertEqual((attachment_id, Owner.AGENT, Step.ATTACHED, path, "file"), found)

    def test_reconcile_passes_mode_and_guard(self):
        self.reconciler.reconcile(self.add(mode="ro"))
        (entry,) = self.entries()
        self.assertEqual("ro", entry.mode)
        self.assertEqual("ro", entry.connection_info["access_mode"])
        self.assertIsNotNone(entry.connection_info["service_uuid"])

    def test_reconcile_remakes_device_whose_mode_has_changed(self):
        attachment_id = self.attached(mode="ro")
        self.finish_move(attachment_id)
        states = [agent_manager_api.desired_state(CREDENTIALS, attachment_id)]
        self.assertEqual([attachment_id], self.reconciler.list_pending(states))
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(["disconnect by force", "connect"], self.connector.calls)
        (entry,) = self.entries()
        self.assertEqual(
            ("rw", "rw", "hidden-from-logs"),
            (
                entry.mode,
                entry.connection_info["access_mode"],
                entry.connection_info["auth_password"],
            ),
        )
        self.assertEqual([], self.reconciler.list_pending(states))
        self.assertEqual("attached", self.seen(attachment_id)[0])

    def test_device_in_use_whose_mode_has_changed_is_kept(self):
        attachment_id = self.attached(mode="ro")
        self.finish_move(attachment_id)
        with self.connector.path("t1").open("rb"), self.assertRaises(exception.DeviceBusy):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual([], self.connector.calls)
        self.assertIn("in use", self.seen(attachment_id)[2])
        self.reconciler.reconcile(attachment_id)
        self.assertEqual((None, "rw"), (self.seen(attachment_id)[2], self.entries()[0].mode))

    def finish_move(self, attachment_id):
        """Change the mode as the manager does."""
        info = {**INFO, "data": {**INFO["data"], "access_mode": "rw"}}
        db_rows.change_attachment(attachment_id, mode="rw", connection_info=info)

    def test_reconcile_of_attached_does_nothing(self):
        attachment_id = self.attached()
        before = self.entries()
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(([], before), (self.connector.calls, self.entries()))

    def test_reconcile_remakes_lost_device_and_reports_new_path(self):
        attachment_id = self.attached()
        self.connector.reboot()
        self.connector.folder = self.folder()
        with self.assertLogs("attachd.agent.reconciler", "WARNING") as logged:
            self.make_reconciler().reconcile(attachment_id)
        self.assertIn("made again", logged.output[0])
        self.assertEqual((["t1"], ["connect"]), (self.connector.devices(), self.connector.calls))
        self.assertEqual(
            ("attached", str(self.connector.path("t1")), None), self.seen(attachment_id)
        )

    def test_reconcile_after_reboot_uses_secrets_of_journal(self):
        attachment_id = self.attached()
        self.connector.reboot()
        self.make_reconciler().reconcile(attachment_id)
        (entry,) = self.entries()
        self.assertEqual("hidden-from-logs", entry.connection_info["auth_password"])
        desired = agent_manager_api.desired_state(CREDENTIALS, attachment_id)
        self.assertNotIn("auth_password", desired["connection_info"])

    def test_reconcile_with_lost_journal_reports_lost_secrets(self):
        attachment_id = self.attached()
        self.connector.reboot()
        for entry in self.entries():
            self.host.journal.remove(entry)
        with self.assertRaisesRegex(exception.HostError, "attach it again"):
            self.make_reconciler().reconcile(attachment_id)
        self.assertRegex(self.seen(attachment_id)[2], "does not have the secrets")
        self.withdraw(attachment_id)
        self.make_reconciler().reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])

    def test_reconcile_clears_error_after_remake(self):
        attachment_id = self.attached()
        self.connector.reboot()
        self.connector.failing.add("connect")
        with self.assertRaises(exception.HostError):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual("It could not connect.", self.seen(attachment_id)[2])
        self.connector.failing.clear()
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(
            ("attached", str(self.connector.path("t1")), None), self.seen(attachment_id)
        )

    def test_reconcile_failure_is_reported_and_retried(self):
        attachment_id = self.add()
        self.connector.failing.add("connect")
        with self.assertRaisesRegex(exception.HostError, "could not connect"):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual(("connected", None, "It could not connect."), self.seen(attachment_id))
        self.connector.failing.clear()
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(("attached", None), self.seen(attachment_id)[::2])

    def test_missing_requirement_is_reported_before_any_step(self):
        attachment_id = self.add()
        self.connector.lacking.append("iscsiadm (package open-iscsi)")
        with self.assertRaisesRegex(exception.MissingRequirements, "iscsiadm"):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual(([], []), (self.entries(), self.connector.calls))
        self.assertIn("iscsiadm", self.seen(attachment_id)[2])

    def test_journal_failure_is_reported_before_any_step(self):
        attachment_id = self.add()
        (self.top / "attachments").touch()
        with self.assertRaisesRegex(exception.HostError, "cannot be written"):
            self.reconciler.reconcile(attachment_id)
        self.assertIn("cannot be written", self.seen(attachment_id)[2])
        self.assertEqual([], self.connector.calls)

    def test_unreported_failure_is_raised(self):
        self.connector.failing.add("connect")
        away = exception.Unavailable(reason="gone")
        with (
            mock.patch.object(agent_manager_api, "failed", side_effect=away),
            self.assertRaisesRegex(exception.HostError, "could not connect"),
        ):
            self.reconciler.reconcile(self.add())

    def test_volume_attached_by_hand_is_refused(self):
        local = self.host.journal.write(Entry(self.volume_id, attachment_id="by-hand"))
        attachment_id = self.add()
        with self.assertRaisesRegex(exception.LocalConflict, "by hand.*by-hand"):
            self.reconciler.reconcile(attachment_id)
        self.assertIn("by hand", self.seen(attachment_id)[2])
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual(([local], []), (self.entries(), self.connector.calls))

    def test_changed_connection_before_connect_removes_device_first(self):
        attachment_id = self.add()
        killed = mock.patch.object(self.connector, "connect", side_effect=ProcessKilled)
        with killed, contextlib.suppress(ProcessKilled):
            self.reconciler.reconcile(attachment_id)
        db_rows.change_attachment(attachment_id, connection_info=OTHER_INFO)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(["disconnect by force", "connect"], self.connector.calls)
        self.assertEqual(["t2"], self.connector.devices())

    def test_changed_connection_keeps_device_in_use(self):
        attachment_id = self.attached()
        (entry,) = self.entries()
        self.host.journal.write(entry, step=Step.DISCONNECTING)
        db_rows.change_attachment(attachment_id, connection_info=OTHER_INFO)
        with self.connector.path("t1").open("rb"), self.assertRaises(exception.DeviceBusy):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual((["t1"], []), (self.connector.devices(), self.connector.calls))

    def test_orphan_of_same_volume_is_removed_before_connect(self):
        gone = self.attached()
        db_rows.remove_attachment(gone)
        self.reconciler.reconcile(self.add(connection_info=OTHER_INFO))
        self.assertEqual(["disconnect by force", "connect"], self.connector.calls)
        self.assertEqual(["t2"], self.connector.devices())

    def test_grown_volume_extends_device(self):
        attachment_id = self.attached()
        self.connector.size_gib = 3
        db_rows.change_volume(self.volume_id, size_gib=3)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual((["extend"], 3 * fake_host.GIB), (self.connector.calls, self.size()))

    def test_file_system_is_read_once_and_grows_if_no_other_host_has_the_volume(self):
        self.reconciler = Reconciler(
            self.make_host(), CREDENTIALS, Options(), slots=2, grow_filesystems=["xfs"]
        )
        gib = fake_host.GIB
        read = FilesystemState("xfs", gib, 2 * gib, 7)
        reader = self.enterContext(mock.patch.object(growth, "read", return_value=read))
        grown = FilesystemState("xfs", 2 * gib, 2 * gib, 7)
        grower = self.enterContext(mock.patch.object(growth, "grow", return_value=grown))
        self.enterContext(mock.patch.object(growth, "is_read", lambda entry: entry.filesystem))
        attachment_id = self.add()
        other = db_rows.add_attachment(self.volume_id, "connected", host="other")["id"]
        with self.assertRaisesRegex(exception.HostError, "xfs has 1 of 2 GiB: another host has"):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual(("attached", None), self.seen(attachment_id)[::2])
        grower.assert_not_called()
        states = [agent_manager_api.desired_state(CREDENTIALS, attachment_id)]
        self.assertEqual([attachment_id], self.reconciler.list_pending(states))
        db_rows.remove_attachment(other)
        self.reconciler.reconcile(attachment_id)
        (entry,) = self.entries()
        self.assertEqual(grown, entry.filesystem)
        self.assertEqual([], self.reconciler.list_pending(states))
        self.assertEqual(2, reader.call_count)

    def test_file_system_of_another_type_stays_and_is_no_failure(self):
        read = FilesystemState("ext4", fake_host.GIB, 2 * fake_host.GIB, 7)
        self.enterContext(mock.patch.object(growth, "read", return_value=read))
        self.reconciler.reconcile(self.add())
        self.assertEqual(read, self.entries()[0].filesystem)

    def test_size_that_cannot_be_read_leaves_the_attachment_complete(self):
        attachment_id, error = self.add(), exception.HostError(reason="It hangs.")
        with (
            mock.patch.object(growth, "read", side_effect=error),
            self.assertRaisesRegex(exception.HostError, "It hangs"),
        ):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual(("attached", None), self.seen(attachment_id)[::2])

    def size(self):
        return self.connector.path("t1").stat().st_size

    def test_failed_extend_raises_host_error(self):
        attachment_id = self.attached()
        db_rows.change_volume(self.volume_id, size_gib=3)
        with self.assertRaisesRegex(exception.HostError, "3 GiB"):
            self.reconciler.reconcile(attachment_id)

    def test_hanging_extend_leaves_volume_lock_to_process_and_error_until_success(self):
        attachment_id = self.attached()
        db_rows.change_volume(self.volume_id, size_gib=3)
        hangs = exception.HostHangs(pid=7, seconds="1")
        lock = self.top / "locks" / self.volume_id
        with (
            mock.patch.object(self.connector, "extend", side_effect=hangs),
            self.assertRaises(exception.HostHangs),
        ):
            self.reconciler.reconcile(attachment_id)
        self.assertTrue(lock.exists())
        self.assertEqual("attached", self.seen(attachment_id)[0])
        self.assertIn("Process 7", db_rows.get_attachment(attachment_id)["error"])
        self.connector.size_gib = 3
        for _ in range(2):
            desired = agent_manager_api.desired_state(CREDENTIALS, attachment_id)
            self.assertEqual([attachment_id], self.reconciler.list_pending([desired]))
            self.reconciler.reconcile(attachment_id)
        self.assertEqual([], self.reconciler.list_pending([desired]))
        self.assertIsNone(db_rows.get_attachment(attachment_id)["error"])


class DisconnectTest(ReconcilerCase):
    def test_disconnect_removes_device_before_report(self):
        attachment_id = self.attached()
        self.withdraw(attachment_id)
        real, seen = agent_manager_api.disconnected, []

        def result(*args):
            seen.extend([self.connector.devices(), [entry.step for entry in self.entries()]])
            real(*args)

        with mock.patch.object(agent_manager_api, "disconnected", result):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual([[], [Step.DISCONNECTING]], seen)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual(([], ["disconnect"]), (self.entries(), self.connector.calls))

    def test_disconnect_of_device_in_use_is_refused(self):
        attachment_id = self.attached()
        self.withdraw(attachment_id)
        refused = self.assertRaisesRegex(exception.DeviceBusy, "process")
        with self.connector.path("t1").open("rb"), refused:
            self.reconciler.reconcile(attachment_id)
        state, device, error = self.seen(attachment_id)
        self.assertEqual(("attached", str(self.connector.path("t1"))), (state, device))
        self.assertIn("in use by process", error)
        self.reconciler.reconcile(attachment_id)  # which finds nothing to do
        self.assertEqual([], self.connector.calls)

    def test_refusal_names_user_with_undecodable_name(self):
        attachment_id = self.attached()
        self.withdraw(attachment_id)
        busy = exception.DeviceBusy(device="/dev/sdb", users=os.fsdecode(b"/mnt/caf\xe9"))
        with (
            mock.patch("attachd.agent.mount.open_handles.check_unused", side_effect=busy),
            self.assertRaises(exception.DeviceBusy),
        ):
            self.reconciler.reconcile(attachment_id)
        state, _device, error = self.seen(attachment_id)
        self.assertEqual("attached", state)
        self.assertIn(r"/mnt/caf\udce9", error)

    def test_failed_disconnect_is_retried(self):
        attachment_id = self.attached()
        self.withdraw(attachment_id)
        self.connector.failing.add("disconnect")
        with self.assertRaisesRegex(exception.HostError, "could not disconnect"):
            self.reconciler.reconcile(attachment_id)
        self.assertEqual(
            ("withdrawing", "It could not disconnect."), self.seen(attachment_id)[::2]
        )
        self.connector.failing.clear()
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])

    def test_lost_journal_does_not_prove_disconnect(self):
        attachment_id = self.attached()
        (entry,) = self.entries()
        self.host.journal.remove(entry)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(([], ["disconnect"]), (self.connector.devices(), self.connector.calls))
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])

    def test_untracked_device_in_use_is_kept(self):
        attachment_id = self.attached()
        (entry,) = self.entries()
        self.connector.is_removable = True
        for change in (
            lambda: self.host.journal.remove(entry),
            lambda: self.host.journal.write(entry, step=Step.CONNECTING, device=None),
        ):
            change()
            self.withdraw(attachment_id)
            with self.connector.path("t1").open("rb"), self.assertRaises(exception.DeviceBusy):
                self.reconciler.reconcile(attachment_id)
            self.assertEqual(
                ("attached", ["t1"]), (self.seen(attachment_id)[0], self.connector.devices())
            )

    def test_disconnect_without_requirements_succeeds(self):
        attachment_id = self.add()
        self.connector.lacking.append("iscsiadm")
        with self.assertRaises(exception.MissingRequirements):
            self.reconciler.reconcile(attachment_id)
        self.withdraw(attachment_id)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(
            ("disconnecting", []), (self.seen(attachment_id)[0], self.connector.calls)
        )


class ForgetTest(ReconcilerCase):
    def test_orphan_is_removed(self):
        for moved in (
            db_rows.remove_attachment,
            lambda a: db_rows.change_attachment(a, agent="other"),
        ):
            attachment_id = self.attached()
            moved(attachment_id)
            with self.assertLogs("attachd.agent.reconciler", "WARNING") as logged:
                self.reconciler.reconcile(attachment_id)
            self.assertNotIn("ERROR", logged.output[0])
            self.assertEqual(["disconnect by force"], self.connector.calls)
            self.assertEqual(([], []), (self.entries(), self.connector.devices()))

    def test_orphan_in_use_is_kept(self):
        """If the service has lost its database, only this host knows which devices are used."""
        attachment_id = self.attached()
        db_rows.remove_attachment(attachment_id)
        for _ in range(2):
            with self.connector.path("t1").open("rb"), self.assertRaises(exception.DeviceBusy):
                self.reconciler.reconcile(attachment_id)
            self.assertEqual([], self.connector.calls)
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(([], []), (self.entries(), self.connector.devices()))

    def test_unknown_attachment_is_ignored(self):
        self.reconciler.reconcile("unknown")
        self.assertEqual([], self.connector.calls)


class MeanwhileTest(ReconcilerCase):
    """The desired state changes while the host works."""

    def during(self, verb, decide):
        real = getattr(self.connector, verb)

        def act(*args, **kwargs):
            patched.stop()
            decide()
            return real(*args, **kwargs)

        patched = mock.patch.object(self.connector, verb, act)
        patched.start()

    def test_withdrawal_during_connect_disconnects(self):
        attachment_id = self.add()
        self.during("connect", lambda: self.withdraw(attachment_id))
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
        self.assertEqual(([], []), (self.entries(), self.connector.devices()))

    def test_removal_during_connect_removes_device(self):
        attachment_id = self.add()
        self.during("connect", lambda: db_rows.remove_attachment(attachment_id))
        self.reconciler.reconcile(attachment_id)
        self.assertEqual(([], []), (self.entries(), self.connector.devices()))

    def test_volume_lock_excludes_command_line(self):
        attachment_id, done = self.add(), threading.Event()

        def reconcile():
            self.reconciler.reconcile(attachment_id)
            done.set()

        with self.host.journal.volume_lock(self.volume_id):
            thread = threading.Thread(target=reconcile)
            thread.start()
            self.assertFalse(done.wait(0.2))  # slow, it is done no sooner
            self.assertEqual([], self.connector.calls)
        thread.join(TIMEOUT)
        self.assertEqual("attached", self.seen(attachment_id)[0])


class DueTest(ReconcilerCase):
    def due(self, *attachments):
        states = [
            agent_manager_api.desired_state(CREDENTIALS, attachment) for attachment in attachments
        ]
        return self.reconciler.list_pending([state for state in states if state])

    def test_attached_is_not_pending(self):
        self.assertEqual([], self.due(self.attached()))

    def test_new_changed_or_withdrawn_is_pending(self):
        new = self.add()
        self.assertEqual([new], self.due(new))
        self.reconciler.reconcile(new)
        db_rows.change_volume(self.volume_id, size_gib=2)
        self.assertEqual([new], self.due(new))
        db_rows.change_volume(self.volume_id, size_gib=1)
        self.connector.reboot()
        self.assertEqual([new], self.due(new))
        self.reconciler.reconcile(new)
        self.withdraw(new)
        self.assertEqual([new], self.due(new))

    def test_orphan_is_pending(self):
        attachment_id = self.attached()
        db_rows.remove_attachment(attachment_id)
        self.assertEqual([attachment_id], self.due(attachment_id))

    def test_list_pending_with_unreadable_journal_raises(self):
        self.attached()
        (self.top / "attachments" / "x.json").write_text("{")
        with self.assertRaisesRegex(exception.HostError, "x.json"):
            self.due()

    def test_attachment_by_hand_is_not_pending(self):
        self.host.journal.write(Entry(self.volume_id, attachment_id="by-hand"))
        self.assertEqual([], self.due())

    def test_unfinished_step_is_pending(self):
        attachment_id = self.attached()
        (entry,) = self.entries()
        self.host.journal.write(entry, step=Step.COMPLETING)
        self.assertEqual([attachment_id], self.due(attachment_id))


class InfoTest(ReconcilerCase):
    def test_secret_is_only_in_journal(self):
        with self.assertLogs("attachd", "DEBUG") as logged:
            self.attached()
        self.assertIn("auth_password", f"{self.entries()}")
        self.assertNotIn(INFO["data"]["auth_password"], "".join(logged.output))
