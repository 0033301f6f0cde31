# SPDX-License-Identifier: Apache-2.0
"""The life of volumes on a node, through the real driver, agent, manager and API."""

import contextlib
import json
import os
from pathlib import Path
import signal

import grpc

from attachd.agent.mount import file_groups
from attachd.csi import csi_pb2
from attachd.tests.fixtures import csi_driver, requirements, systemd_units
from attachd.tests.fixtures.csi_nodes import NOWHERE
from attachd.tests.fixtures.processes import ROOT
from attachd.tests.functional.csi_node_case import CsiNodeCase, capability
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

GIB = 2**30
UNKNOWN = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a0001"


class CsiNodeTest(CsiNodeCase):
    def test_life_of_volume_with_each_call_twice(self):
        info = self.driver.call("NodeGetInfo")
        self.assertEqual(self.host.name, info.node_id)
        zone = {"topology.csi.attachd.org/zone": "zone-1"}
        self.assertEqual(zone, dict(info.accessible_topology.segments))
        self.assertTrue(self.driver.call("Probe").ready.value)
        for _ in range(2):
            self.stage()
        group = self.publish_fields(volume_capability=capability(group="40000"))
        for _ in range(2):
            self.driver.call("NodePublishVolume", **group)
            self.publish(1)
        self.assertEqual(40_000, Path(self.targets[1]).stat().st_gid)
        self.file(0).write_text("data")
        self.assertEqual("data", self.file(1).read_text())
        usage = {one.unit: one for one in self.stats(self.targets[0]).usage}
        self.assertGreater(usage[csi_pb2.VolumeUsage.BYTES].total, GIB // 2)
        self.assertFalse(self.stats(self.staging).volume_condition.abnormal)
        refused = self.deployment.detach(self.attachment_id)
        self.assertEqual(409, refused.status_code, refused.text)
        for _ in range(2):
            self.unpublish(0)
            self.unpublish(1)
        for _ in range(2):
            self.unstage()
        self.assert_clean()
        self.detach()


@full_only("containers")
class CsiNodeFullTest(CsiNodeCase):
    """What happens less often."""

    def test_group_of_pod_gets_files_and_is_repeated_after_kill(self):
        self.stage()
        self.publish()
        files = [Path(self.targets[0]) / f"{number}" for number in range(4_000)]
        for file in files:
            file.touch(mode=0o600)
        self.unpublish()
        self.unstage()
        stage = self.stage_fields(volume_capability=capability(group="40000"))
        call = self.driver.start_call("NodeStageVolume", **stage)
        program = wait_until(self.find_program, interval=0.01)
        wait_until(lambda: any(file.stat().st_gid for file in self.staged()), interval=0.01)
        os.kill(program, signal.SIGKILL)
        self.restart_driver()
        self.assertRaises(grpc.RpcError, call.result)
        self.assertEqual({0, 40_000}, {file.stat().st_gid for file in self.staged()})
        self.assertEqual(0, Path(self.staging).stat().st_gid)
        self.driver.call("NodeStageVolume", **stage)
        publish = self.publish_fields(volume_capability=capability(group="40000"))
        self.driver.call("NodePublishVolume", **publish)
        self.assertEqual(0o42770, Path(self.targets[0]).stat().st_mode & 0o42770)
        found = {(file.stat().st_gid, file.stat().st_mode) for file in files}
        self.assertEqual({(40_000, 0o100660)}, found)
        refused = {"volume_capability": capability(group="users")}
        self.driver.fail("INVALID_ARGUMENT", "NodePublishVolume", **{**publish, **refused})
        self.unpublish()
        self.unstage()
        self.assert_clean()

    def staged(self):
        """Return the files of the volume, where it is staged."""
        return [file for file in Path(self.staging).iterdir() if file.is_file()]

    def find_program(self):
        """Return the process that gives the files to a group; None: it does not run."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_text().split("\0")
                if file_groups.__name__ in words and self.staging in words:
                    return int(path.parent.name)
        return None

    def test_xfs_grows_while_it_is_published_and_keeps_data(self):
        requirements.require_tool(self, "mkfs.xfs")
        self.stage("xfs")
        self.publish(0, "xfs")
        self.file().write_text("data")
        self.extend(2)
        for path in (self.targets[0], self.staging):
            for _ in range(2):
                self.assertEqual(2 * GIB, self.expand(path, 2 * GIB).capacity_bytes)
        self.assertGreater(os.statvfs(self.targets[0]).f_blocks * 4096, 1.5 * GIB)
        self.unpublish()
        self.unstage()
        self.detach()
        self.attach()
        self.stage("xfs")
        self.publish(0, "xfs")
        self.assertEqual("data", self.file().read_text())
        self.unpublish()
        self.unstage()
        self.assert_clean()

    def test_rights_of_the_unit_suffice(self):
        unit = systemd_units.read_unit(ROOT / "etc/systemd/attachd-csi-node.service")
        rights = [
            f"+{right.removeprefix('CAP_').lower()}"
            for line in unit["CapabilityBoundingSet"]
            for right in line.split()
        ]
        self.assertLess(5, len(rights))
        setpriv = requirements.require_tool(self, "setpriv")
        only = f"--bounding-set={','.join(['-all', *rights])}"
        self.driver.kill()
        self.driver = csi_driver.CsiDriver(
            self,
            NOWHERE,
            "--mode=node",
            f"--agent-socket={self.host.top / 'agent.sock'}",
            launcher=(setpriv, only, "--no-new-privs"),
        )
        for fs_type in ("xfs", None):
            group = {"volume_capability": capability(fs_type, group="40000")}
            self.driver.call("NodeStageVolume", **self.stage_fields(**group))
            self.driver.call("NodePublishVolume", **self.publish_fields(**group))
            if fs_type is not None:
                self.file().write_text("data")
                self.assertEqual(0o42770, self.file().parent.stat().st_mode & 0o42770)
                self.extend(2)
                self.assertEqual(2 * GIB, self.expand(self.staging, 2 * GIB).capacity_bytes)
            self.assertFalse(self.stats(self.targets[0]).volume_condition.abnormal)
            with Path(self.targets[0]).open("rb") if fs_type is None else self.file().open():
                self.driver.fail(
                    "ABORTED",
                    "NodeUnpublishVolume",
                    volume_id=self.volume_id,
                    target_path=self.targets[0],
                )
            self.unpublish()
            self.unstage()
            self.assert_clean()
        self.detach()

    def test_block_volume_is_device_in_container(self):
        for _ in range(2):
            self.stage(None)
            self.publish(0, None)
        with Path(self.targets[0]).open("r+b") as device:
            device.write(b"data")
            os.fsync(device)
        (usage,) = self.stats(self.targets[0]).usage
        self.assertEqual(GIB, usage.total)
        self.extend(2)
        self.assertEqual(2 * GIB, self.expand(self.targets[0], 2 * GIB).capacity_bytes)
        # Nothing has it open, and it must not become another disk.
        self.assertEqual(409, self.deployment.detach(self.attachment_id).status_code)
        self.unpublish()
        self.unstage()
        self.assert_clean()
        self.detach()
        self.attach()
        self.driver.fail("INTERNAL", "NodeStageVolume", **self.stage_fields())
        self.assert_clean()

    def test_kubelet_restart_repeats_calls_for_same_paths(self):
        self.stage()
        self.publish()
        self.file().write_text("data")
        with self.file().open():
            for restart in (self.restart_driver, self.restart_agent):
                restart()
                self.driver.call("NodeGetInfo")
                self.stage()
                self.publish()
                self.assertEqual("data", self.file().read_text())
        self.unpublish()
        self.unstage()
        self.assert_clean()
        self.detach()

    def test_killed_driver_and_agent_between_calls_lose_nothing(self):
        for number, restart in enumerate((self.restart_driver, self.restart_agent)):
            for call in (self.stage, self.publish, self.unpublish, self.unstage):
                call()
                if call == self.publish:
                    self.file().write_text(f"{number}")
                restart()
                call()
        self.assert_clean()
        self.stage()
        self.publish()
        self.assertEqual("1", self.file().read_text())
        self.unpublish()
        self.unstage()

    def test_driver_killed_in_the_middle_continues(self):
        for moment in range(6):
            with self.subTest(moment):
                calls = [self.start_call("NodeStageVolume", self.stage_fields())]
                if moment:
                    wait_until(lambda: self.host.entries()[0].staging is not None)
                calls += [self.start_call("NodeGetInfo", {})] * moment
                self.restart_driver()
                if moment % 2:
                    self.unstage()
                    self.assert_clean()
                self.stage()
                self.publish()
                self.unpublish()
                self.unstage()
                self.assert_clean()

    def start_call(self, name, fields):
        """Start a call whose answer is lost."""
        return self.driver.start_call(name, **fields)

    def test_device_that_is_not_there_yet_is_waited_for(self):
        self.detach()
        self.agent.kill()
        headers = {"Prefer": "respond-async"}
        response = self.deployment.attach(self.volume_id, self.host.name, **headers)
        self.attachment_id = response.json()["attachment"]["id"]
        with self.assertRaises(grpc.RpcError):
            self.driver.call("NodeStageVolume", **self.stage_fields())
        self.agent = self.host.start()
        self.stage()
        self.unstage()

    def test_staging_is_listed_on_host(self):
        self.stage()
        self.publish()
        (entry,) = self.host.entries()
        self.assertEqual((self.staging, "attached"), (entry.mountpoint, entry.step))
        self.assertNotIn("auth_password", json.dumps(f"{entry.staging}"))
        self.unpublish()
        self.unstage()

    def test_impossible_stages_are_refused(self):
        stage = self.stage_fields()
        for code, changes in (
            ("NOT_FOUND", {"publish_context": {"attachd.attachment_id": UNKNOWN}}),
            ("INVALID_ARGUMENT", {"publish_context": {}}),
            ("INVALID_ARGUMENT", {"publish_context": {"attachd.attachment_id": "x"}}),
            ("INVALID_ARGUMENT", {"volume_capability": capability("", "MULTI_NODE_MULTI_WRITER")}),
            ("INVALID_ARGUMENT", {"volume_capability": capability("btrfs")}),
            ("INVALID_ARGUMENT", {"volume_capability": capability("../x")}),
            (
                "INVALID_ARGUMENT",
                {"volume_capability": capability("ext4", "SINGLE_NODE_MULTI_WRITER", "bind")},
            ),
        ):
            with self.subTest(**changes):
                self.driver.fail(code, "NodeStageVolume", **{**stage, **changes})
        self.assert_clean()

    def test_unstage_and_unpublish_of_volume_that_never_was_succeed(self):
        for name, path in (
            ("NodeUnstageVolume", "staging_target_path"),
            ("NodeUnpublishVolume", "target_path"),
        ):
            for _ in range(2):
                self.driver.call(name, volume_id=UNKNOWN, **{path: f"{self.folder}/x"})

    def test_condition_of_missing_agent_is_not_known(self):
        self.stage()
        self.agent.kill()
        self.assertFalse(self.stats(self.staging).volume_condition.abnormal)
        self.assertFalse(self.driver.call("Probe").ready.value)
        self.driver.fail("UNAVAILABLE", "NodeStageVolume", **self.stage_fields())
        self.unstage()
        self.assert_clean()
