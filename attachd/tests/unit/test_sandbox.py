# SPDX-License-Identifier: Apache-2.0
"""Processes in a sandbox, which try to leave it."""

import ctypes
import json
import os
from pathlib import Path
import socket
import subprocess
import unittest

import fixtures

from attachd import sandbox
from attachd.tests.fixtures import requirements
from attachd.tests.wait import TIMEOUT

PYTHON = "/usr/bin/python3"
_PROBE = """
import ctypes, json, os, socket, sys
def outcome(function):
    try:
        return function()
    except OSError as error:
        return error.errno
def connect(port):
    with socket.create_connection(("127.0.0.1", port)):
        return "connected"
def open_socket(*kind):
    with socket.socket(*kind):
        return "opened"
own, foreign, pid, fd = sys.argv[1], sys.argv[2], int(sys.argv[3]), 3
libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps({
    "root": sorted(os.listdir("/")),
    "etc": sorted(os.listdir("/etc")),
    "directory": os.getcwd(),
    "user": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "bounding": [n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1],
    "no_new_privs": libc.prctl(39, 0, 0, 0, 0),
    "own": open(own).read(),
    "foreign": outcome(lambda: open(foreign).read()),
    "shadow": outcome(lambda: open("/etc/shadow").read()),
    "write": outcome(lambda: open("/usr/new", "w").write("")),
    "write here": outcome(lambda: open("new", "w").write("")),
    "inherited": os.read(fd, 100).decode(),
    "second": outcome(lambda: os.fstat(4)),
    "fork": outcome(os.fork),
    "chdir": outcome(lambda: os.chdir("/")),
    "setuid": outcome(lambda: os.setuid(0)),
    "kill": outcome(lambda: os.kill(pid, 0)),
    "unix": outcome(lambda: open_socket(socket.AF_UNIX)),
    "netlink": outcome(lambda: open_socket(socket.AF_NETLINK)),
    "packet": outcome(lambda: open_socket(17)),
    "udp": outcome(lambda: open_socket(socket.AF_INET, socket.SOCK_DGRAM)),
    "udp6": outcome(lambda: open_socket(socket.AF_INET6, socket.SOCK_DGRAM)),
    "tcp": outcome(lambda: open_socket(socket.AF_INET, socket.SOCK_STREAM)),
    "connect": [outcome(lambda: connect(int(port))) for port in sys.argv[4:]],
}, default=str))
"""
_EPERM, _ENOENT, _EACCES, _EROFS, _EBADF, _ECONNREFUSED = 1, 2, 13, 30, 9, 111


def landlock_abi():
    """Return the version of Landlock that the kernel has; less than 1: none."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1)


class SandboxTest(fixtures.TestWithFixtures):
    """A process of a sandbox sees its own files, and nothing else of the host."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        requirements.share_mounts(self)
        requirements.require_tool(self, PYTHON)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve() / "device"
        self.folder.mkdir(mode=0o700)
        self.own, self.foreign = self.folder / "own", self.folder / "foreign"
        for file in (self.own, self.foreign):
            file.write_text("secret")
            file.chmod(0o600)

    def listen(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        return listener.getsockname()[1]

    def run_probe(self, *ports, **values):
        """Run the probe in a sandbox; returns what it could do."""
        reading, writing = os.pipe()
        with os.fdopen(reading), os.fdopen(writing, "w") as file:
            file.write("inherited")
            file.flush()
            tested = sandbox.Sandbox(f"{self.folder}", copies=[f"{self.own}"], **values)
            probe = [f"{self.own}", f"{self.foreign}", f"{os.getpid()}", *map(str, ports)]
            line = tested.command_line([reading], PYTHON, "-I", "-S", "-c", _PROBE, *probe)
            process = subprocess.run(
                line,
                cwd=self.folder,
                pass_fds=[reading],
                capture_output=True,
                check=False,
                timeout=TIMEOUT,
            )
        self.assertEqual(b"", process.stderr)
        return tested, json.loads(process.stdout)

    def test_process_has_its_files_its_user_and_no_rights(self):
        tested, result = self.run_probe()
        self.assertIn(tested.user, sandbox.USERS)
        self.assertEqual([tested.user] * 6, result["user"])
        self.assertEqual(f"{self.folder}", result["directory"])
        self.assertEqual("secret", result["own"])
        self.assertEqual("inherited", result["inherited"])
        expected = {
            "bounding": [],
            "no_new_privs": 1,
            "foreign": _ENOENT,
            "shadow": _ENOENT,
            "write": _EROFS,
            "write here": _EROFS,
            "second": _EBADF,
            "fork": _EPERM,
            "chdir": _EPERM,
            "setuid": _EPERM,
            "kill": _EPERM,
            "unix": _EACCES,
            "netlink": _EACCES,
            "packet": _EACCES,
            "udp": _EACCES,
            "udp6": _EACCES,
            "tcp": "opened",
        }
        self.assertEqual(expected, {name: result[name] for name in expected})
        self.assertLessEqual(
            set(result["root"]),
            {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "tmp", "usr"},
        )
        self.assertNotIn("ceph", result["etc"])

    def test_process_connects_to_its_ports_alone(self):
        if landlock_abi() < 4:
            raise unittest.SkipTest("the kernel cannot limit ports")
        ports = [self.listen(), self.listen()]
        _, result = self.run_probe(*ports, ports=ports[:1])
        self.assertEqual(["connected", _EACCES], result["connect"])

    def test_process_without_limits_connects_to_all_ports_and_asks_name_servers(self):
        _, result = self.run_probe(self.listen(), self.listen(), datagrams=True)
        self.assertEqual(["connected"] * 2, result["connect"])
        self.assertEqual(["opened"] * 2, [result["udp"], result["udp6"]])

    def test_process_keeps_one_capability(self):
        _, result = self.run_probe(capability=sandbox.NET_BIND_SERVICE)
        self.assertEqual([sandbox.NET_BIND_SERVICE], result["bounding"])

    def test_missing_program_fails_with_reason(self):
        line = sandbox.Sandbox(f"{self.folder}").command_line([], "/usr/bin/no-such-program")
        result = subprocess.run(line, cwd=self.folder, capture_output=True, check=False)
        self.assertIn(b"cannot be entered: [Errno 2]", result.stderr)
        self.assertNotEqual(0, result.returncode)

    def test_users_of_directories_differ(self):
        users = {sandbox.Sandbox(f"/devices/{number}").user for number in range(100)}
        self.assertEqual(100, len(users))
