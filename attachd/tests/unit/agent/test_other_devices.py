# SPDX-License-Identifier: Apache-2.0
"""Which devices of a host its agent reports although it has not made them."""

from attachd.agent.connectors.qemu import state_dir
from attachd.agent.journal import Entry, Journal, Owner
from attachd.agent.other_devices import OtherDevices
from attachd.manager.agents import report_schema
from attachd.tests.fixtures import fake_agent
from attachd.tests.unit.agent.test_strays import ATTACHMENT, IQN, OTHER, VOLUME, Case

MINE = f"iqn.2030-01.org.example:cloud.{OTHER}"
SECTORS = 2**21


class OtherDevicesTest(Case):
    def setUp(self):
        super().setUp()
        self.journal = Journal(self.state_path)
        self.others = OtherDevices(self.journal, self.root)

    def reported(self):
        """Return the devices of a report, which a manager accepts."""
        found = self.others.find()
        said = fake_agent.make_report("h", observed={"devices": found, "asked": []})
        report_schema.check_report(said)
        return found

    def disk(self, number, target, name, *, state="running"):
        self.session(number, target, disk=name)
        self.write(f"class/block/{name}/size", SECTORS)
        self.write(f"class/block/{name}/device/state", state)

    def test_disk_of_compute_is_reported_with_its_condition(self):
        self.disk(3, IQN, "sda", state="offline")
        (found,) = self.reported()
        expected = {
            "volume_id": VOLUME,
            "attachment_id": None,
            "target": IQN,
            "path": "/dev/sda",
            "size_bytes": 2**30,
            "mountpoint": None,
            "paths": [{"name": "sda", "state": "failed"}],
            "last_io_error": "sda is offline",
        }
        self.assertEqual(expected, found)

    def test_disks_without_multipath_are_the_paths_of_one_device(self):
        self.disk(3, IQN, "sda")
        self.disk(4, IQN, "sdb", state="offline")
        (found,) = self.reported()
        states = {path["name"]: path["state"] for path in found["paths"]}
        self.assertEqual({"sda": "active", "sdb": "failed"}, states)
        self.assertEqual(("/dev/sda", "sdb is offline"), (found["path"], found["last_io_error"]))

    def test_target_with_any_prefix_is_reported(self):
        self.disk(3, MINE, "sda")
        self.disk(4, "iqn.2030-01.org.example:root", "sdb")
        self.assertEqual([OTHER], [found["volume_id"] for found in self.reported()])

    def test_name_of_target_says_the_attachment(self):
        self.disk(3, f"{IQN}-for-{ATTACHMENT}", "sda")
        (found,) = self.reported()
        self.assertEqual((VOLUME, ATTACHMENT), (found["volume_id"], found["attachment_id"]))

    def test_session_without_disk_is_reported_without_device(self):
        self.session(3, IQN)
        (found,) = self.reported()
        self.assertEqual((None, None, []), (found["path"], found["size_bytes"], found["paths"]))

    def test_device_of_the_agent_is_not_reported(self):
        self.disk(3, IQN, "sda")
        self.journal.write(Entry(VOLUME, owner=Owner.AGENT, attachment_id=ATTACHMENT))
        self.assertEqual([], self.reported())

    def test_device_made_by_hand_is_reported(self):
        self.disk(3, IQN, "sda")
        self.journal.write(Entry(VOLUME, owner=Owner.LOCAL, attachment_id=ATTACHMENT))
        self.assertEqual([VOLUME], [found["volume_id"] for found in self.reported()])

    def test_user_space_device_made_by_hand_has_its_attachment(self):
        info = {"driver_volume_type": "iscsi", "attachment_id": ATTACHMENT}
        directory = state_dir.path_for(self.state_path, info)
        directory.mkdir(parents=True)
        self.write("block/loop0/loop/backing_file", f"{directory}/image")
        self.write("class/block/loop0/size", SECTORS)
        self.assertEqual([], self.reported())  # Its volume is not known.
        self.journal.write(Entry(VOLUME, attachment_id=ATTACHMENT, connection_info=info))
        (found,) = self.reported()
        self.assertEqual(
            (VOLUME, ATTACHMENT, "/dev/loop0"),
            (found["volume_id"], found["attachment_id"], found["path"]),
        )

    def test_loop_device_of_a_backend_on_this_machine_is_not_reported(self):
        self.write("block/loop0/loop/backing_file", f"/srv/exports/{VOLUME}/{ATTACHMENT}")
        self.write("class/block/loop0/size", SECTORS)
        self.assertEqual([], self.reported())
        entry = Entry(VOLUME, attachment_id=ATTACHMENT)
        for protocol, expected in (("local", []), ("nfs", ["/dev/loop0"])):
            self.journal.write(entry, connection_info={"driver_volume_type": protocol})
            self.assertEqual(expected, [found["path"] for found in self.reported()])

    def test_target_with_control_characters_is_reported(self):
        path = f"/srv/\x01{'x' * 300}/exports/{VOLUME}/{ATTACHMENT}"
        self.write("block/loop0/loop/backing_file", path)
        self.write("class/block/loop0/size", SECTORS)
        info = {"driver_volume_type": "nfs"}
        self.journal.write(Entry(VOLUME, attachment_id=ATTACHMENT, connection_info=info))
        self.assertEqual([VOLUME], [found["volume_id"] for found in self.reported()])
