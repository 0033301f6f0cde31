# SPDX-License-Identifier: Apache-2.0
"""The commands for this host: calls of the client and output."""

import dataclasses
import json
import os
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.mount.mount_rules import MountRules
from attachd.agent.strays import ExportedDevice, Kind
from attachd.cli import local
from attachd.client import Attached, LocalAttachment, strays
from attachd.tests.fixtures import lifetime
from attachd.tests.unit.cli import programs

ATTACHED = Attached(
    volume_id="v1",
    attachment_id="a1",
    path="/dev/sdb",
    device={"type": "block", "path": "/dev/sdb", "auth_password": "s3cret"},
    mountpoint="/mnt/disk",
    mode="rw",
)
LISTED = LocalAttachment(
    name="disk",
    volume_id="v1",
    attachment_id="a1",
    path="/dev/sdb",
    mountpoint=None,
    mode="rw",
    owner="local",
    step="attached",
    present=True,
    status="attached",
    error=None,
)


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.made = self.enterContext(mock.patch.object(local, "Client", autospec=True))
        self.client = self.made.return_value
        self.client.attach.return_value = ATTACHED
        self.client.attached.return_value = [LISTED]
        self.client.get_connector.return_value = {"host": "node1", "multipath": False}
        self.become(0)

    def become(self, user):
        self.enterContext(mock.patch.object(os, "geteuid", return_value=user))

    def run_it(self, *words, code=0):
        settings = {**programs.SETTINGS, "ATTACHD_HOST_STATE_PATH": f"{self.folder}"}
        done = programs.run(*words, connection="the cloud", settings=settings)
        self.assertEqual(code, done.code, done.err)
        self.said = done.err
        return done.out


class AttachTest(Case):
    def test_attach_passes_all_options_to_client(self):
        self.run_it(
            *("local-attach", "data", "--mountpoint", "/mnt/disk", "--mkfs", "ext4"),
            *(
                "--assume-empty",
                "--multipath",
                "True",
                "--enforce_multipath",
                "--nic",
                "eth1",
                "--mode",
                "rw",
            ),
            *("--allow-filesystem", "btrfs", "--allow-filesystem", "vfat"),
            *("--mount-options", "noatime,suid", "--grow-fs"),
        )
        self.client.attach.assert_called_once_with(
            "data",
            mode="rw",
            mountpoint="/mnt/disk",
            mkfs="ext4",
            assume_empty=True,
            mount_rules=MountRules(("btrfs", "vfat"), "noatime,suid"),
            grow_fs=True,
            options=Options(multipath=True, enforce_multipath=True, nic="eth1"),
        )

    def test_attach_creates_host_from_options(self):
        self.run_it(
            *("local-attach", "data", "--hostname", "node1", "--initiator", "iqn.2026-01.x:1"),
            *("--connector-type", "user-space", "--state-path", f"{self.folder}/own"),
        )
        cloud, host = self.made.call_args.args
        self.assertEqual("the cloud", cloud)
        self.assertEqual(("node1", "iqn.2026-01.x:1"), dataclasses.astuple(host.identity))
        self.assertEqual("user-space", host.connector.TYPE)
        self.assertEqual(self.folder / "own", host.journal.state_path)

    def test_attach_without_state_path_uses_environment(self):
        self.run_it("local-attach", "data")
        self.assertEqual(self.folder, self.made.call_args.args[1].journal.state_path)

    def test_attach_prints_device_without_secrets(self):
        shown = json.loads(self.run_it("local-attach", "data", "-f", "json"))
        self.assertEqual("/dev/sdb", shown["path"])
        self.assertEqual("block", shown["device"]["type"])
        self.assertNotEqual("s3cret", shown["device"]["auth_password"])
        self.assertNotIn("s3cret", self.run_it("local-attach", "data"))

    def test_attach_with_mkfs_and_mode_ro_is_refused(self):
        self.run_it("local-attach", "data", "--mkfs", "ext4", "--mode", "ro", code=2)
        self.assertIn("argument --mkfs", self.said)
        self.made.assert_not_called()

    def test_attach_with_assume_empty_needs_mkfs(self):
        self.run_it("local-attach", "data", "--assume-empty", code=2)
        self.assertIn("argument --assume-empty", self.said)
        self.made.assert_not_called()

    def test_attach_with_options_of_mount_needs_mountpoint(self):
        for words in (("--mount-options", "noatime"), ("--allow-filesystem", "btrfs")):
            self.run_it("local-attach", "data", *words, code=2)
            self.assertIn("argument --mountpoint", self.said)
        self.made.assert_not_called()

    def test_attach_with_wrong_options_of_mount_is_refused(self):
        words = ("--mountpoint", "/mnt/disk", "--mount-options", "rw")
        self.run_it("local-attach", "data", *words, code=1)
        self.assertIn("'rw' cannot be an option of the mount", self.said)

    def test_attach_failure_is_one_line(self):
        self.client.attach.side_effect = exception.MissingRequirements(
            host="node1", what="iscsiadm"
        )
        self.assertEqual("", self.run_it("local-attach", "data", code=1))
        self.assertEqual("Host node1 lacks: iscsiadm.\n", self.said)


class GrowTest(Case):
    def test_grow_passes_all_options_and_prints_sizes(self):
        self.client.grow.return_value = dataclasses.replace(
            ATTACHED, size_bytes=2**31, filesystem="xfs", filesystem_bytes=2**31
        )
        words = ("local-grow", "data", "--grow-fs", "--attachment-id", "a1")
        shown = json.loads(self.run_it(*words, "-f", "json"))
        self.client.grow.assert_called_once_with("data", attachment_id="a1", grow_fs=True)
        self.assertEqual((2**31, "xfs"), (shown["filesystem_bytes"], shown["filesystem"]))


class TrimTest(Case):
    def test_trim_prints_bytes(self):
        self.client.trim.return_value = 2**26
        shown = json.loads(self.run_it("local-trim", "data", "-f", "json"))
        self.client.trim.assert_called_once_with("data")
        self.assertEqual({"trimmed_bytes": 2**26}, shown)


class DetachTest(Case):
    def test_detach_passes_all_options_to_client(self):
        self.run_it(
            *("local-detach", "data", "--attachment_uuid", "a1", "--multipath"),
            *("--device_info", '{"path": "/dev/sdb"}', "--force"),
        )
        self.client.detach.assert_called_once_with(
            "data",
            attachment_id="a1",
            device_info={"path": "/dev/sdb"},
            options=Options(multipath=True),
            force=True,
        )

    def test_detach_without_options_passes_none(self):
        self.assertEqual("", self.run_it("local-detach", "data"))
        self.client.detach.assert_called_once_with(
            "data", attachment_id=None, device_info=None, options=None, force=False
        )


class ConnectorTest(Case):
    def test_get_connector_prints_connector(self):
        shown = json.loads(
            self.run_it("get-connector", "--multipath", "True", "--nic", "eth1", "-f", "json")
        )
        self.assertEqual({"host": "node1", "multipath": False}, shown)
        self.client.get_connector.assert_called_once_with(Options(multipath=True, nic="eth1"))


class ListTest(Case):
    def test_local_list_prints_columns(self):
        (row,) = json.loads(self.run_it("local-list", "-f", "json"))
        self.assertEqual(list(local.COLUMNS), list(row))
        self.assertEqual(
            ("v1", "/dev/sdb", True), (row["Volume ID"], row["Device"], row["Present"])
        )

    def test_local_list_long_prints_owner(self):
        self.assertEqual(
            "local\n", self.run_it("local-list", "--long", "-f", "value", "-c", "owner")
        )


class RestoreTest(Case):
    def test_local_restore_lists_attachments(self):
        self.client.restore.return_value = [LISTED]
        (row,) = json.loads(self.run_it("local-restore", "-f", "json"))
        self.assertEqual("v1", row["Volume ID"])

    def test_local_restore_with_failure_lists_all_and_exits_with_1(self):
        broken = dataclasses.replace(LISTED, volume_id="v2", error="no route to host")
        self.client.restore.return_value = [LISTED, broken]
        rows = json.loads(self.run_it("local-restore", "-f", "json", code=1))
        self.assertEqual([None, "no route to host"], [row["Error"] for row in rows])

    def test_local_restore_ignores_failures_of_agent(self):
        theirs = dataclasses.replace(LISTED, owner="agent", error="no route to host")
        self.client.restore.return_value = [theirs]
        self.assertIn("no route to host", self.run_it("local-restore"))


class StraysTest(Case):
    def setUp(self):
        super().setUp()
        made = self.enterContext(mock.patch.object(strays, "StrayFinder", autospec=True))
        self.made, self.finder = made, made.return_value
        device = ExportedDevice(Kind.RBD, "volumes/attachd-1", ("/dev/rbd0",))
        self.stray = strays.Stray(device, "no attachment, not in the journal")

    def test_host_strays_lists_and_exits_with_1(self):
        self.finder.find.return_value = [self.stray]
        (row,) = json.loads(self.run_it("host-strays", "-f", "json", code=1))
        self.assertEqual(
            {
                "Device": "/dev/rbd0",
                "Kind": "rbd",
                "Target": "volumes/attachd-1",
                "Reason": "no attachment, not in the journal",
                "State": "unused",
                "Error": None,
            },
            row,
        )
        self.finder.clean.assert_not_called()

    def test_host_strays_without_strays_exits_with_0(self):
        self.finder.find.return_value = []
        self.assertEqual("", self.run_it("host-strays", "-f", "value"))
        self.assertEqual({"is_named": False}, self.made.call_args.kwargs)

    def test_host_strays_passes_options_to_finder(self):
        removed = dataclasses.replace(self.stray, state=strays.State.REMOVED)
        self.finder.clean.return_value = [removed]
        self.run_it(
            *("host-strays", "--clean", "--force", "/dev/rbd0", "--prefix", "volumes/own-"),
            *("--hostname", "node1"),
        )
        self.finder.clean.assert_called_once_with(["/dev/rbd0"], force=True)
        self.assertEqual(["volumes/own-"], self.made.call_args.args[2])
        self.assertEqual({"is_named": True}, self.made.call_args.kwargs)

    def test_host_strays_options_need_clean(self):
        for word in ("/dev/rbd0", "--force"):
            self.run_it("host-strays", word, code=2)
            self.assertIn("argument --clean", self.said)


class RootTest(Case):
    def test_local_commands_without_root_are_refused_before_first_action(self):
        self.become(65534)
        for words in (
            ["local-attach", "v"],
            ["local-detach", "v"],
            ["local-list"],
            ["get-connector"],
            ["host-strays"],
        ):
            with self.subTest(words=words):
                self.run_it(*words, code=1)
                self.assertIn("the rights of root", self.said)
        self.made.assert_not_called()
        self.assertEqual([], list(self.folder.iterdir()))
