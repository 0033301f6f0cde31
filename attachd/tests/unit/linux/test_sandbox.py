# SPDX-License-Identifier: Apache-2.0
"""Processes in a sandbox, which try to leave it."""

import json
import os
from pathlib import Path
import socket
import subprocess
import sys
import tempfile
from unittest import mock

import fixtures

from attachd.linux import sandbox
from attachd.tests.fixtures import requirements
from attachd.tests.wait import TIMEOUT

PYTHON = "/usr/bin/python3"
_PROBE = """
import ctypes, json, os, resource, signal, socket, sys, threading
def outcome(function):
    try:
        return function()
    except OSError as error:
        return error.errno
def connect(port):
    with socket.create_connection(("127.0.0.1", port)):
        return "connected"
def send_first(port):
    with socket.socket() as opened:
        return opened.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))
def send_first_message(port):
    with socket.socket() as opened:
        return opened.sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", port))
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
    "mptcp": outcome(lambda: open_socket(socket.AF_INET, socket.SOCK_STREAM, 262)),
    "sctp": outcome(lambda: open_socket(socket.AF_INET6, socket.SOCK_STREAM, 132)),
    "icmp": outcome(lambda: open_socket(socket.AF_INET, socket.SOCK_DGRAM, 1)),
    "seqpacket": outcome(lambda: open_socket(socket.AF_INET, socket.SOCK_SEQPACKET)),
    "first": [
        outcome(lambda: send(int(port)))
        for send in (send_first, send_first_message) for port in sys.argv[4:]
    ],
    "newer": [-libc.syscall(number, 0, 0, 0) and ctypes.get_errno() for number in (452, 511)],
    "limit": outcome(lambda: resource.prlimit(pid, resource.RLIMIT_CORE)),
    "own limit": outcome(lambda: resource.getrlimit(resource.RLIMIT_CORE)),
    "own signal": outcome(lambda: signal.pthread_kill(threading.get_ident(), 0)),
    "connect": [outcome(lambda: connect(int(port))) for port in sys.argv[4:]],
}, default=str))
"""
_GIVE_UP = """
import json, os, socket, sys, threading
from attachd.linux import sandbox

def outcome(call):
    try:
        call()
    except OSError as error:
        return os.strerror(error.errno)
    return "done"

def connect(port):
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", port))

pid, folder, ports, permitted, user = json.loads(sys.argv[1])
if user is not None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
fd = os.open(folder, os.O_RDONLY)
asked, results = threading.Event(), {}
def read():
    asked.wait()
    results["thread"] = outcome(lambda: open("/etc/hostname"))
if permitted is not None:
    sandbox.limit_ports(permitted)
thread = threading.Thread(target=read)
thread.start()
sandbox.give_up_files()
asked.set()
thread.join()
old, new = f"{folder}/old", f"{folder}/new"
for name, call in {
    "write": lambda: open(new, "w"),
    "read below": lambda: os.open("old", os.O_RDONLY, dir_fd=fd),
    "list": lambda: os.listdir("/"),
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "fork": lambda: os.fork(),
    "unlink": lambda: os.unlink(old),
    "chmod": lambda: os.chmod(old, 0o666),
    "chmod below": lambda: os.chmod("old", 0o666, dir_fd=fd),
    "fchmod": lambda: os.fchmod(fd, 0o777),
    "chown": lambda: os.chown(old, os.getuid(), -1),
    "link": lambda: os.link(old, new),
    "symlink": lambda: os.symlink(old, new),
    "mkdir": lambda: os.mkdir(new),
    "rmdir": lambda: os.rmdir(f"{folder}/empty"),
    "utime": lambda: os.utime(old),
    "setxattr": lambda: os.setxattr(old, "user.x", b""),
    "kill": lambda: os.kill(pid, 0),
    "unix": lambda: socket.socket(socket.AF_UNIX),
    "netlink": lambda: socket.socket(socket.AF_NETLINK),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "server": lambda: socket.create_server(("127.0.0.1", 0)).close(),
}.items():
    results[name] = outcome(call)
results["connect"] = [outcome(lambda: connect(port)) for port in ports]
results["open file"] = outcome(lambda: os.fstat(fd))
print(json.dumps([results, os.getuid()]))
"""
_EPERM, _ENOENT, _EACCES, _EROFS, _EBADF, _ENOSYS = 1, 2, 13, 30, 9, 38
_REFUSED = {"Permission denied", "Operation not permitted"}


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
            "mptcp": _EACCES,
            "sctp": _EACCES,
            "icmp": _EACCES,
            "seqpacket": _EACCES,
            "newer": [_ENOSYS] * 2,
            "limit": _EPERM,
            "own limit": [0, 0],
            "own signal": None,
        }
        self.assertEqual(expected, {name: result[name] for name in expected})
        self.assertLessEqual(
            set(result["root"]),
            {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "tmp", "usr"},
        )
        self.assertNotIn("ceph", result["etc"])

    def test_process_connects_to_its_ports_alone(self):
        requirements.require_port_limits()
        ports = [self.listen(), self.listen()]
        _, result = self.run_probe(*ports, ports=ports[:1])
        self.assertEqual(["connected", _EACCES], result["connect"])

    def test_first_message_opens_no_connection(self):
        _, result = self.run_probe(self.listen())
        self.assertEqual([_EACCES] * 2, result["first"])

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

    def test_missing_library_is_named(self):
        self.assertEqual([], sandbox.missing_requirements())
        with mock.patch.object(sandbox, "SECCOMP_LIBRARY", "libnone.so.2"):
            self.assertEqual(
                ["libnone.so.2 (package libseccomp2)"], sandbox.missing_requirements()
            )

    def test_users_of_directories_differ(self):
        users = {sandbox.Sandbox(f"/devices/{number}").user for number in range(100)}
        self.assertEqual(100, len(users))


class GiveUpFilesTest(fixtures.TestWithFixtures):
    """A process of ours that gives up what it does not need any more, as root and as a user."""

    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path).resolve()
        (self.folder / "old").touch()
        (self.folder / "empty").mkdir()
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.ports = [listener.getsockname()[1] for listener in self.listeners]
        for listener in self.listeners:
            self.addCleanup(listener.close)

    def run_program(self, permitted=None, user=None):
        values = json.dumps([os.getpid(), f"{self.folder}", self.ports, permitted, user])
        line = [sys.executable, "-P", "-c", _GIVE_UP, values]
        result = subprocess.run(line, capture_output=True, check=False, text=True)
        self.assertEqual("", result.stderr)
        return json.loads(result.stdout)

    def assert_given_up(self, results):
        kept = {name: results.pop(name) for name in ("connect", "open file")}
        self.assertEqual({}, {k: v for k, v in results.items() if v not in _REFUSED})
        self.assertEqual({"connect": ["done"] * 2, "open file": "done"}, kept)
        self.assertEqual({"old", "empty"}, {path.name for path in self.folder.iterdir()})

    def test_all_threads_lose_files_programs_and_processes(self):
        results, user = self.run_program()
        self.assertNotEqual(0, user)
        self.assert_given_up(results)

    def test_user_loses_what_its_files_permit(self):
        requirements.require_root(self)
        for path in (self.folder, *self.folder.iterdir()):
            os.chown(path, sandbox.NOBODY, sandbox.NOBODY)
        results, user = self.run_program(user=sandbox.NOBODY)
        self.assertEqual(sandbox.NOBODY, user)
        self.assert_given_up(results)

    def test_threads_of_limited_process_connect_to_its_ports_alone(self):
        requirements.require_port_limits()
        results, _ = self.run_program(self.ports[1:])
        self.assertEqual(["Permission denied", "done"], results["connect"])


_CONFINED = """
import json, os, resource, socket, sys
def outcome(function):
    try:
        return function() and "done"
    except OSError as error:
        return os.strerror(error.errno)
source, result = (f"/proc/self/fd/{number}" for number in sys.argv[1:3])
foreign = sys.argv[3]
print(json.dumps({
    "source": open(source).read(),
    "write source": outcome(lambda: open(source, "r+")),
    "write result": outcome(lambda: open(result, "r+").write("result")),
    "too much": outcome(lambda: os.pwrite(int(sys.argv[2]), b"x", 5000)),
    "foreign": outcome(lambda: open(foreign)),
    "shadow": outcome(lambda: open("/etc/shadow")),
    "list": outcome(lambda: os.listdir("/etc")),
    "new": outcome(lambda: open(f"{foreign}.new", "w")),
    "socket": outcome(socket.socket),
    "unix": outcome(lambda: socket.socket(socket.AF_UNIX)),
    "fork": outcome(os.fork),
    "kill": outcome(lambda: os.kill(os.getppid(), 0)),
    "uid": os.getuid(),
    "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
    "cpu": resource.getrlimit(resource.RLIMIT_CPU)[0],
}))
"""


class ConfinementTest(fixtures.TestWithFixtures):
    def setUp(self):
        super().setUp()
        requirements.require_library(self, sandbox.SECCOMP_LIBRARY)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)

    def test_confined_program_reaches_its_files_alone(self):
        foreign = self.folder / "foreign"
        foreign.write_text("secret")
        foreign.chmod(0o666)
        self.folder.chmod(0o777)
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as result:
            source.write(b"data")
            source.flush()
            fds = (source.fileno(), result.fileno())
            confined = sandbox.Confinement(fds[:1], fds[1:], 2**30, 7, 4096)
            line = confined.command_line(
                PYTHON, "-I", "-S", "-c", _CONFINED, *map(str, fds), f"{foreign}"
            )
            answer = subprocess.run(
                line, capture_output=True, check=True, pass_fds=fds, timeout=TIMEOUT
            )
            result.seek(0)
            self.assertEqual(b"result", result.read())
        denied, forbidden = "Permission denied", "Operation not permitted"
        expected = {
            "source": "data",
            "write source": denied,
            "write result": "done",
            "too much": "File too large",
            **dict.fromkeys(("foreign", "shadow", "list", "new", "socket", "unix"), denied),
            **dict.fromkeys(("fork", "kill"), forbidden),
            "uid": sandbox.NOBODY if os.geteuid() == 0 else os.geteuid(),
            "memory": 2**30,
            "cpu": 7,
        }
        self.assertEqual(expected, json.loads(answer.stdout))
