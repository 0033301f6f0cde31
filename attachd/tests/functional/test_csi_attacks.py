# SPDX-License-Identifier: Apache-2.0
"""Callers of attachd-csi that mean no good, or make mistakes: at its socket, and with paths."""

from pathlib import Path
import socket
import subprocess
import threading
import unittest
import uuid

import grpc

from attachd.csi import server
from attachd.linux import mountinfo
from attachd.tests.fixtures import csi_driver, csi_nodes, processes, requirements
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.functional.csi_rows import RowCase
from attachd.tests.selection import full_only

OTHER_USER = 65534
_CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
IDLE = 300
"""Connections without a request."""
HALF = 100
"""Calls whose request never comes: more than there are workers."""


@full_only("containers")
class SocketTest(unittest.TestCase):
    """A driver without an API and an agent."""

    def setUp(self):
        super().setUp()
        self.driver = csi_driver.CsiDriver(self, csi_nodes.NOWHERE, "--mode=all")

    def connect_as(self, user):
        """Have a process of a user connect; return what it has written."""
        setpriv = requirements.require_tool(self, "setpriv")
        rights = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
        line = (setpriv, *rights, "/usr/bin/python3", "-c", _CONNECT, f"{self.driver.socket}")
        return processes.run(line).stderr

    def test_process_of_other_user_cannot_connect(self):
        requirements.require_root(self)
        # All may see the socket.
        self.driver.socket.parent.chmod(0o755)
        self.assertIn("PermissionError", self.connect_as(OTHER_USER))
        self.assertEqual("", self.connect_as(0))

    def test_link_instead_of_socket_is_kept_and_refused(self):
        folder = temp_dir(self)
        file, path = folder / "file", folder / "csi.sock"
        file.write_text("data")
        for target in (file, folder / "missing", self.driver.socket):
            path.symlink_to(target)
            text = processes.check_output(
                (processes.script("attachd-csi"), f"--endpoint=unix://{path}", "--mode=node"),
                code=1,
                env=processes.environment(),
            )
            self.assertIn("is not a socket", text)
            self.assertEqual(target, path.readlink())
            path.unlink()
        self.assertEqual("data", file.read_text())
        self.assertTrue(self.driver.call("GetPluginInfo").name)

    def test_large_request_is_refused_and_next_one_is_answered(self):
        path = "/csi.v1.Identity/Probe"
        for size in (server.MAX_MESSAGE + 1, 16 * server.MAX_MESSAGE):
            self.driver.fail_unknown("RESOURCE_EXHAUSTED", path, b"\xff" * size)
        self.driver.fail_unknown("INTERNAL", path, b"\xff" * 1024)
        self.assertTrue(self.driver.call("GetPluginInfo").name)

    def test_idle_connections_and_half_requests_delay_no_other_call(self):
        for number in range(IDLE):
            client = socket.socket(socket.AF_UNIX)
            self.addCleanup(client.close)
            client.connect(f"{self.driver.socket}")
            # The beginning of HTTP/2, of something else, or nothing.
            client.sendall((b"", b"PRI * HTTP/2.0\r\n\r\nSM", b"GET / HTTP/1.1\r\n")[number % 3])
        channel = grpc.insecure_channel(f"unix:{self.driver.socket}")
        self.addCleanup(channel.close)
        is_over = threading.Event()
        self.addCleanup(is_over.set)

        def wait_for_end():
            is_over.wait()
            yield from ()

        for _ in range(HALF):
            channel.stream_unary("/csi.v1.Controller/DeleteVolume").future(wait_for_end())
        for _ in range(2):
            self.assertTrue(self.driver.call("GetPluginInfo").name)
            self.driver.fail("INVALID_ARGUMENT", "DeleteVolume")


@full_only("containers")
class PathTest(RowCase):
    """A node with a volume that is staged and published to a pod."""

    def setUp(self):
        super().setUp()
        self.node = self.nodes[0]
        self.staged_fields = self.stage()
        self.pod = self.start_pod(self.staged_fields)
        self.volume_id = self.staged_fields["volume_id"]

    def restrict(self):
        """Start another driver, whose paths are below the folder of the test."""
        words = ("--mode=node", f"--agent-socket={self.node.host.top / 'agent.sock'}")
        directory = f"--directory={self.folders[self.node.host.name]}"
        return csi_driver.CsiDriver(self, csi_nodes.NOWHERE, *words, directory)

    def test_paths_outside_of_directory_are_refused(self):
        driver, outside = self.restrict(), temp_dir(self)
        link = Path(self.path("link"))
        link.symlink_to(outside)
        for path in (f"{outside}/volume", f"{link}/volume", f"{self.pod}/../../volume", "volume"):
            with self.subTest(path):
                self.check_paths_are_refused(driver, path)
        self.assertEqual([], [*outside.iterdir()])
        fields = {"volume_id": self.volume_id, "target_path": f"{self.pod}"}
        driver.call("NodePublishVolume", **self.staged_fields, target_path=f"{self.pod}")
        driver.call("NodeUnpublishVolume", **fields)
        self.assertFalse(self.pod.exists())

    def check_paths_are_refused(self, driver, path):
        staged, code = self.staged_fields, "INVALID_ARGUMENT"
        driver.fail(code, "NodeStageVolume", **{**staged, "staging_target_path": path})
        driver.fail(code, "NodePublishVolume", **staged, target_path=path)
        volume = {"volume_id": self.volume_id}
        driver.fail(code, "NodeUnpublishVolume", target_path=path, **volume)
        driver.fail(code, "NodeUnstageVolume", staging_target_path=path, **volume)

    def test_target_that_is_a_link_is_not_followed(self):
        outside = temp_dir(self)
        link = Path(self.path("pod1"))
        link.symlink_to(outside)
        self.addCleanup(link.unlink, missing_ok=True)
        for name in ("NodePublishVolume", "NodeUnpublishVolume"):
            more = self.staged_fields if name == "NodePublishVolume" else {}
            fields = {**more, "volume_id": self.volume_id, "target_path": f"{link}"}
            with self.assertRaises(grpc.RpcError) as caught:
                self.node.driver.call(name, **fields)
            self.assertIn("is a symbolic link", caught.exception.details())
        self.assertIsNone(mountinfo.find_at(f"{outside}"))
        self.assertEqual(outside, link.readlink())

    def test_unpublish_and_unstage_leave_what_is_no_volume_or_another_one(self):
        (self.pod / "file").write_text("data")
        other = temp_dir(self)
        subprocess.run(["mount", "-t", "tmpfs", "none", other], check=True)
        self.addCleanup(subprocess.run, ["umount", other], check=True)
        places = {f"{other}", f"{self.pod}", self.staged_fields["staging_target_path"]}
        fields = {"volume_id": f"{uuid.uuid4()}"}
        for path in places:
            for name, field in (
                ("NodeUnpublishVolume", "target_path"),
                ("NodeUnstageVolume", "staging_target_path"),
            ):
                self.node.driver.fail("FAILED_PRECONDITION", name, **{field: path}, **fields)
            self.assertIsNotNone(mountinfo.find_at(path))
        self.assertEqual("data", (self.pod / "file").read_text())

    def test_volume_of_other_name_is_not_staged(self):
        staged = {**self.staged_fields, "volume_id": self.create()}
        self.node.driver.fail("INVALID_ARGUMENT", "NodeStageVolume", **staged)
