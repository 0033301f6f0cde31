# SPDX-License-Identifier: Apache-2.0
"""Which devices are strays, and their removal, with made-up devices and a service of mock."""

import unittest
from unittest import mock

from openstack import exceptions

from attachd import exception
from attachd.agent import stray_removal
from attachd.agent import strays as scan
from attachd.agent.connectors.qemu import state_dir
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry, Owner
from attachd.agent.strays import ExportedDevice, Kind
from attachd.client import strays
from attachd.client.service import RemoteAttachment, Service
from attachd.client.strays import State
from attachd.tests.fixtures import lifetime

VOLUME = "1a2b3c4d-5e6f-4071-8293-a4b5c6d7e8f9"
OTHER = "9f8e7d6c-5b4a-4392-8170-fedcba987654"
NAMED = "0c1d2e3f-4a5b-4c6d-9e7f-8091a2b3c4d5"
DISK = ExportedDevice(Kind.ISCSI, f"iqn.x:{VOLUME}", ("/dev/sda",), VOLUME)
LOOP = ExportedDevice(Kind.LOOP, f"/exports/{VOLUME}/{NAMED}", ("/dev/loop1",), VOLUME, NAMED)
NOT_FOUND = exceptions.NotFoundException("Host node1 could not be found.")


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.host = Host(Identity("node1"), lifetime.temp_dir(self), "user-space")
        self.service = mock.create_autospec(Service, instance=True, cloud="here")
        self.attachments = {}
        self.hosts = {"node1": []}
        self.service.attachment.side_effect = self.attachments.get
        self.service.host_attachments.side_effect = self.host_attachments
        self.devices = [DISK]
        self.users = {}
        for owner, name, effect in (
            (scan, "list_exported", lambda *_: [*self.devices]),
            (stray_removal, "find_users", lambda device: self.users.get(device.target, "")),
        ):
            self.enterContext(mock.patch.object(owner, name, side_effect=effect))
        self.removal = self.enterContext(
            mock.patch.object(stray_removal, "remove", side_effect=self.remove)
        )

    def host_attachments(self, name):
        if name not in self.hosts:
            raise NOT_FOUND
        return self.hosts[name]

    def remove(self, _journal, device, **_options):
        self.devices.remove(device)

    def attach(self, id_, volume, host="node1"):
        """Add an attachment to the service."""
        self.attachments[id_] = RemoteAttachment(id_, volume, "attached", "rw", host, {})
        self.hosts.setdefault(host, []).append(id_)

    def finder(self, **settings):
        return strays.StrayFinder(self.host, self.service, **settings)

    def states(self, found):
        return {stray.device.target: stray.state for stray in found}


class FindTest(Case):
    def test_host_without_devices_does_not_need_service(self):
        self.devices = []
        self.service.host_attachments.side_effect = AssertionError
        self.assertEqual([], self.finder().find())

    def test_device_without_attachment_is_stray(self):
        self.attach("a1", OTHER)
        self.attach("a2", VOLUME, "node2")
        (stray,) = self.finder().find()
        self.assertEqual((DISK, State.UNUSED, None), (stray.device, stray.state, stray.error))
        self.assertEqual("no attachment, not in the journal", stray.reason)

    def test_device_of_attachment_without_journal_is_no_stray(self):
        self.attach("a1", VOLUME)
        self.assertEqual([], self.finder().find())

    def test_attachments_under_name_of_agent_count(self):
        self.attach("a1", VOLUME, "node1.example.org")
        (self.host.journal.state_path / "agent.host").write_text("node1.example.org\n")
        self.assertEqual([], self.finder().find())
        del self.hosts["node1"]
        self.assertEqual([], self.finder().find())

    def test_device_in_use_names_users(self):
        self.users[DISK.target] = "process 7"
        (stray,) = self.finder().find()
        self.assertEqual((State.IN_USE, "In use: process 7."), (stray.state, stray.error))

    def test_file_belongs_to_attachment_not_to_volume(self):
        self.devices = [LOOP]
        self.attach("a1", VOLUME)
        self.assertEqual({LOOP.target: State.UNUSED}, self.states(self.finder().find()))
        self.attach(NAMED, VOLUME, "another name of this machine")
        self.assertEqual([], self.finder().find())

    def test_entry_of_deleted_attachment_is_stray(self):
        self.host.journal.write(Entry(VOLUME, owner=Owner.AGENT, attachment_id="a1"))
        (stray,) = self.finder().find()
        self.assertEqual("no attachment, left in the journal", stray.reason)
        self.attach("a1", VOLUME, "node1-by-hand")
        self.assertEqual([], self.finder().find())

    def test_multipath_device_is_foreign_unless_journal_has_its_volume(self):
        wwid = VOLUME.replace("-", "")[:25]
        self.devices = [ExportedDevice(Kind.MULTIPATH, f"mpath-36001405{wwid}", ("/dev/dm-1",))]
        (stray,) = self.finder().find()
        self.assertEqual((State.UNUSED, True), (stray.state, stray.is_foreign))
        self.assertIn("attachd host-strays --clean /dev/dm-1", stray.error)
        self.assertEqual([stray], self.finder().clean())
        self.host.journal.write(Entry(VOLUME, owner=Owner.AGENT, attachment_id="a1"))
        (noted,) = self.finder().find()
        self.assertEqual((False, None), (noted.is_foreign, noted.error))
        self.assertEqual([State.REMOVED], [stray.state for stray in self.finder().clean()])

    def test_multipath_device_outside_the_journal_is_removed_by_its_name(self):
        self.devices = [
            ExportedDevice(Kind.MULTIPATH, f"mpath-36001405{'a' * 25}", ("/dev/dm-1",))
        ]
        (stray,) = self.finder().clean(["/dev/dm-1"])
        self.assertEqual(State.REMOVED, stray.state)

    def test_entry_of_interrupted_reservation_is_no_stray(self):
        self.host.journal.write(Entry(VOLUME))
        self.assertEqual([], self.finder().find())

    def test_entry_of_other_service_is_no_stray(self):
        self.host.journal.write(Entry(VOLUME, attachment_id="a1", cloud="elsewhere"))
        self.assertEqual([], self.finder().find())

    def test_user_space_device_is_compared_by_directory(self):
        info = {"driver_volume_type": "iscsi", "target_iqn": "iqn.x"}
        path = state_dir.path_for(self.host.journal.state_path, info)
        self.devices = [ExportedDevice(Kind.USER_SPACE, f"{path}", ())]
        self.assertEqual({f"{path}": State.UNUSED}, self.states(self.finder().find()))
        self.host.journal.write(Entry(VOLUME, attachment_id="a1", connection_info=info))
        self.attach("a1", VOLUME)
        self.assertEqual([], self.finder().find())

    def test_silent_service_leaves_devices_unknown(self):
        self.service.host_attachments.side_effect = exceptions.SDKException("no answer")
        (stray,) = self.finder().find()
        self.assertEqual(State.UNKNOWN, stray.state)
        self.assertIn("no answer", stray.error)
        self.host.journal.write(Entry(VOLUME, attachment_id="a1"))
        self.assertEqual([], self.finder().find())

    def test_service_that_fails_later_leaves_devices_unknown(self):
        self.devices = [LOOP]
        self.service.attachment.side_effect = exceptions.SDKException("no answer")
        self.assertEqual({LOOP.target: State.UNKNOWN}, self.states(self.finder().find()))

    def test_unreadable_attachment_leaves_devices_unknown(self):
        self.hosts["node1"] = ["a7"]
        (stray,) = self.finder().find()
        self.assertEqual(State.UNKNOWN, stray.state)
        self.assertIn("Attachment a7 of this host cannot be read", stray.error)

    def test_unknown_host_name_has_to_be_given(self):
        self.hosts = {}
        (stray,) = self.finder().find()
        self.assertEqual(State.UNKNOWN, stray.state)
        self.assertIn("could not be found", stray.error)
        (stray,) = self.finder(is_named=True).find()
        self.assertEqual(State.UNUSED, stray.state)
        self.service.check_hosts.side_effect = NOT_FOUND
        (stray,) = self.finder(is_named=True).find()
        self.assertEqual(State.UNKNOWN, stray.state)


class CleanTest(Case):
    def test_clean_removes_unused_strays(self):
        self.devices = [DISK, LOOP]
        self.users[LOOP.target] = "process 7"
        found = self.finder().clean()
        self.assertEqual(
            {DISK.target: State.REMOVED, LOOP.target: State.IN_USE}, self.states(found)
        )
        self.assertEqual([LOOP], self.devices)

    def test_clean_by_force_removes_device_in_use(self):
        self.users[DISK.target] = "process 7"
        (stray,) = self.finder().clean(force=True)
        self.assertEqual((State.REMOVED, None), (stray.state, stray.error))
        self.assertEqual({"force": True}, self.removal.call_args.kwargs)

    def test_clean_never_removes_unknown_devices(self):
        self.service.host_attachments.side_effect = exceptions.SDKException("no answer")
        (stray,) = self.finder().clean(force=True)
        self.assertEqual(State.UNKNOWN, stray.state)
        self.removal.assert_not_called()

    def test_clean_removes_only_named_strays(self):
        self.devices = [DISK, LOOP]
        for name in ("/dev/sda", DISK.target):
            self.devices = [DISK, LOOP]
            found = self.finder().clean([name])
            self.assertEqual({DISK.target: State.REMOVED}, self.states(found))
            self.assertEqual([LOOP], self.devices)

    def test_clean_removes_device_of_unknown_volume_only_by_name(self):
        self.service.has_volume.side_effect = lambda volume_id: volume_id == OTHER
        (stray,) = self.finder().clean()
        self.assertEqual(State.UNUSED, stray.state)
        self.assertIn(f"no volume {VOLUME}", stray.error)
        self.removal.assert_not_called()
        (stray,) = self.finder().clean(["/dev/sda"])
        self.assertEqual((State.REMOVED, None), (stray.state, stray.error))

    def test_clean_of_name_of_no_stray_removes_nothing(self):
        with self.assertRaisesRegex(exception.HostError, "/dev/sdz: no stray of this host"):
            self.finder().clean(["/dev/sda", "/dev/sdz"])
        self.removal.assert_not_called()

    def test_clean_keeps_device_that_was_attached_meanwhile(self):
        finder = self.finder()
        (stray,) = finder.find()
        self.attach("a1", VOLUME)
        with mock.patch.object(finder, "find", return_value=[stray]):
            (result,) = finder.clean()
        self.assertEqual(State.GONE, result.state)
        self.removal.assert_not_called()

    def test_clean_keeps_device_when_service_falls_silent(self):
        finder = self.finder()
        (stray,) = finder.find()
        self.service.host_attachments.side_effect = exceptions.SDKException("no answer")
        with mock.patch.object(finder, "find", return_value=[stray]):
            (result,) = finder.clean()
        self.assertEqual(State.UNKNOWN, result.state)
        self.removal.assert_not_called()

    def test_clean_waits_for_lock_of_volume(self):
        with (
            mock.patch.object(strays, "_LOCK_TIMEOUT", 0.0),
            self.host.journal.volume_lock(VOLUME),
        ):
            (stray,) = self.finder().clean()
        self.assertEqual(State.FAILED, stray.state)
        self.assertIn("Another process of this host works on volume", stray.error)

    def test_clean_with_failure_goes_on_with_others(self):
        self.devices = [DISK, LOOP]
        self.removal.side_effect = [exception.HostError(reason="refused"), None]
        first, second = self.finder().clean()
        self.assertEqual((State.FAILED, "refused"), (first.state, first.error))
        self.assertEqual(State.FAILED, second.state)
        self.assertIn("is still connected", second.error)
