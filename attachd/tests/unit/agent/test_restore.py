# SPDX-License-Identifier: Apache-2.0
"""Compare journals with "local" devices; functional/test_restore.py has mounts and daemons."""

from pathlib import Path
import unittest

from attachd.agent import restore
from attachd.agent.connectors.base import Device
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.restore import Verdict
from attachd.tests.fixtures import lifetime, requirements


class RestoringTest(unittest.TestCase):
    """A host whose volumes are files of its own."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        self.folder = lifetime.temp_dir(self)
        self.host = Host(Identity("h", "iqn.2026-01.test:h"), self.folder / "host", "user-space")
        self.progress = []

    def test_restore_keeps_intact_attachment(self):
        entry = self.attached("v")
        self.assertEqual([(Verdict.OK, None)], self.describe(restore.check_host(self.host)))
        found = restore.restore_host(self.host, self.current, self.progress.append)
        self.assertEqual([(Verdict.OK, None)], self.describe(found))
        self.assertEqual([entry], self.host.journal.list_entries())

    def test_restore_connects_by_present_connection(self):
        entry = self.attached("v")
        Path(entry.device.path).rename(self.folder / "moved")
        (found,) = restore.check_host(self.host)
        self.assertEqual((Verdict.MISSING, False), (found.verdict, found.present))
        (found,) = self.restore({"v": self.info(self.folder / "moved")})
        self.assertEqual((Verdict.OK, True), (found.verdict, found.present))
        (entry,) = self.host.journal.list_entries()
        self.assertEqual(str(self.folder / "moved"), entry.device.path)
        self.assertEqual((Step.ATTACHED, False), (entry.step, entry.restoring))

    def test_restore_without_service_connects_nothing(self):
        first, second = self.missing("v"), self.attached("w")

        def current(entry):
            raise ConnectionError("no route to host")

        found = {item.entry.id: item for item in restore.restore_host(self.host, current, print)}
        self.assertEqual(Verdict.MISSING, found[first.id].verdict)
        self.assertRegex(found[first.id].error, "service does not say.*no route to host")
        self.assertEqual(first.device, self.host.journal.get(first.id).device)
        self.assertEqual(second, self.host.journal.get(second.id))
        self.assertIsNone(found[second.id].error)

    def test_restore_detaches_deleted_attachment(self):
        self.missing("v")
        self.attached("w")
        found = self.restore({"v": None, "w": None})
        self.assertEqual([Verdict.DELETED] * 2, [item.verdict for item in found])
        self.assertEqual([], self.host.journal.list_entries())
        self.assertTrue((self.folder / "w").exists())

    def test_restore_keeps_deleted_attachment_in_use(self):
        entry = self.attached("v")
        with Path(entry.device.path).open("rb"):
            (found,) = self.restore({"v": None})
        self.assertEqual(Verdict.OK, found.verdict)
        self.assertRegex(found.error, "in use by process")
        (left,) = self.host.journal.list_entries()
        self.assertRegex(left.error, "service has deleted attachment a-v, but .*in use")
        (found,) = self.restore({"v": None})
        self.assertEqual(Verdict.DELETED, found.verdict)

    def test_failed_restore_can_be_repeated(self):
        entry = self.missing("v")
        (found,) = self.restore({"v": self.info(self.folder / "v")})
        self.assertEqual((Verdict.MISSING, entry.id), (found.verdict, found.entry.id))
        self.assertIn("does not exist on this host", found.error)
        (found,) = restore.check_host(self.host)
        self.assertEqual(Verdict.MISSING, found.verdict)
        (self.folder / "v").write_bytes(bytes(512))
        (found,) = self.restore({"v": self.info(self.folder / "v")})
        self.assertEqual((Verdict.OK, None), (found.verdict, found.error))

    def test_failed_restore_does_not_stop_others(self):
        self.missing("a")
        self.missing("b")
        (self.folder / "b").write_bytes(bytes(512))
        with self.host.journal.volume_lock("a"):
            found = self.restore({"b": self.info(self.folder / "b")})
        verdicts = {item.entry.volume_id: (item.verdict, item.error) for item in found}
        self.assertEqual((Verdict.OK, None), verdicts["b"])
        self.assertRegex(verdicts["a"][1], "Another process of this host works on volume a")

    def test_interrupted_restore_is_repeated(self):
        entry = self.attached("v")
        self.host.journal.write(entry, step=Step.CONNECTING, restoring=True, device=None)
        (found,) = restore.check_host(self.host)
        self.assertEqual(Verdict.MISSING, found.verdict)
        (found,) = self.restore({"v": entry.connection_info})
        self.assertEqual(Verdict.OK, found.verdict)

    def test_interrupted_steps_are_recognized(self):
        existing = {
            Step.RESERVING: Verdict.ATTACH_INTERRUPTED,
            Step.CONNECTING: Verdict.ATTACH_INTERRUPTED,
            Step.COMPLETING: Verdict.ATTACH_INTERRUPTED,
            Step.MOUNTING: Verdict.ATTACH_INTERRUPTED,
            Step.UNMOUNTING: Verdict.DETACH_INTERRUPTED,
            Step.DISCONNECTING: Verdict.DETACH_INTERRUPTED,
            Step.DELETING: Verdict.DETACH_INTERRUPTED,
        }
        self.assertEqual({*Step} - {Step.ATTACHED}, {*existing})
        for step, verdict in existing.items():
            entry = self.host.journal.write(self.attached("v"), step=step)
            (found,) = self.restore({})
            self.assertEqual(verdict, found.verdict, step)
            self.assertEqual([entry], self.host.journal.list_entries())
            self.host.journal.remove(entry)

    def test_attachment_of_agent_is_left(self):
        entry = self.host.journal.write(self.missing("v"), owner=Owner.AGENT)
        (found,) = self.restore({})
        self.assertEqual(Verdict.AGENT_MANAGED, found.verdict)
        self.assertEqual([entry], self.host.journal.list_entries())

    def test_unknown_connector_type_is_reported(self):
        self.host.journal.write(self.attached("v"), connector_type="no-such-type")
        (found,) = restore.check_host(self.host)
        self.assertEqual((Verdict.MISSING, False), (found.verdict, found.present))
        self.assertIn("no-such-type", found.error)

    def test_empty_state_directory_is_no_device(self):
        (self.folder / "host" / "devices" / "left").mkdir(parents=True)
        self.assertEqual([], restore.check_host(self.host))

    def attached(self, volume):
        path = self.folder / volume
        path.write_bytes(bytes(512))
        entry = Entry(
            volume, attachment_id=f"a-{volume}", connector_type="user-space", step=Step.ATTACHED
        )
        device = Device(str(path), {"type": "local", "path": str(path)})
        return self.host.journal.write(entry, connection_info=self.info(path), device=device)

    def missing(self, volume):
        entry = self.attached(volume)
        Path(entry.device.path).unlink()
        return entry

    def info(self, path):
        return {"driver_volume_type": "local", "device_path": str(path), "access_mode": "rw"}

    def current(self, entry):
        return entry.connection_info

    def restore(self, infos):
        return restore.restore_host(
            self.host, lambda item: infos[item.volume_id], self.progress.append
        )

    @staticmethod
    def describe(found):
        return [(item.verdict, item.error) for item in found]
