# SPDX-License-Identifier: Apache-2.0
"""A sandbox for a process that parses what other machines send, such as QEMU's block drivers.

The process has a user of its own, no capabilities and cannot gain any (``no_new_privs``). Its root
directory is empty but for the system's programs and libraries and the files that it is given. A
seccomp filter denies new processes, other namespaces, sockets but those of TCP, and what only
administrators need. Landlock limits the TCP ports, from Linux 6.7 on.

The module is its own launcher, a script that needs nothing but the standard library: its start
takes a tenth of what ``import attachd`` takes.

A program that reads what users have made, such as qemu-img an image, has a :class:`Confinement`,
which needs no root: Landlock leaves it only the files that it inherits.

A process of ours that has opened all that it needs can also give up the rest, without root:
:func:`limit_ports` and :func:`give_up_files`.

Source: mount_namespaces(7), pivot_root(2), capabilities(7), seccomp(2), landlock(7), libseccomp.
"""

from collections.abc import Iterable, Sequence
import contextlib
import ctypes
import dataclasses
import hashlib
import json
import os
from pathlib import Path
import resource
import signal
import socket
import sys
from typing import Final, NoReturn

USERS: Final = range(0x78000000, 0x7C000000)
"""The ids of the users of sandboxes: no system allocates them to its users or containers.

Above the default ranges of sssd, below those that are negative in 32 bits.
"""
FIRST_FD: Final = 3
"""The number of the first file descriptor that a process inherits."""
SECCOMP_LIBRARY: Final = "libseccomp.so.2"
NOBODY: Final = 65534
"""The ids of the user and the group of :func:`give_up_files`."""
NET_BIND_SERVICE: Final = 10
"""The capability to use ports below 1024."""

_ROOT: Final = "/sys"
"""The directory over which the new root is mounted, in a mount namespace of its own."""
TRANSIENT_DIRECTORIES: Final = frozenset({_ROOT, "/"})
"""The working directories of the launcher for a moment."""
_MAX_FILE_SIZE: Final = 2**20
"""Bytes of each file that the process writes, such as its log."""
_PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS: Final = (
    *("/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/hosts"),
    *("/etc/host.conf", "/etc/gai.conf"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_THREAD = 0x20000, 0x4000000, 0x8000000, 0x10000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_MS_REC, _MS_SLAVE, _MNT_DETACH = 16384, 1 << 19, 2
_PR_SET_KEEPCAPS, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 8, 23, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAP_VERSION_3: Final = 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION, _LANDLOCK_PATH, _LANDLOCK_PORT = 1, 1, 2
_NET_ABI, _SCOPE_ABI = 4, 6
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_ALL_RIGHTS: Final = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
"""The rights to files that each version of Landlock knows; later ones know no more."""
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NE, _LT, _EQ, _GT, _MASKED_EQ = 1, 2, 4, 6, 7
_EPERM, _ENOSYS, _EACCES = 1, 38, 13
_SYNCHRONIZE_THREADS: Final = 4
_SOCK_TYPE_MASK: Final = 0xF
_SOCK_RDM, _SOCK_DCCP, _SOCK_PACKET = 4, 6, 10
_MSG_FASTOPEN: Final = 0x20000000
_FLAGS_OF_MESSAGES: Final = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
"""The numbers of the arguments that have flags."""

_DENIED: Final = (
    # Other files, namespaces and users.
    *("mount", "umount", "umount2", "pivot_root", "chroot", "chdir", "fchdir", "unshare", "setns"),
    *("open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("name_to_handle_at", "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd"),
    *("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups"),
    *("setfsuid", "setfsgid", "capset"),
    # Other processes.
    *("fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp"),
    *("pidfd_open", "pidfd_getfd", "process_madvise", "process_mrelease"),
    *("kill", "tkill", "rt_sigqueueinfo", "pidfd_send_signal", "migrate_pages", "move_pages"),
    # The kernel's large interfaces, and what only administrators may use.
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open"),
    *("userfaultfd", "add_key", "request_key", "keyctl", "kexec_load", "kexec_file_load"),
    *("init_module", "finit_module", "delete_module", "create_module", "acct", "reboot", "syslog"),
    *("swapon", "swapoff", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime"),
    *("iopl", "ioperm", "modify_ldt", "vm86", "vm86old", "personality", "lookup_dcookie"),
    *(
        "sethostname",
        "setdomainname",
        "vhangup",
        "uselib",
        "ustat",
        "sysfs",
        "_sysctl",
        "nfsservctl",
    ),
)
_FILES: Final = (
    *("open", "openat", "openat2", "creat", "execve", "execveat", "truncate", "mknod", "mknodat"),
    *("unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat"),
    *("symlink", "symlinkat", "mkdir", "mkdirat", "rmdir", "chmod", "fchmod", "fchmodat"),
    *("chown", "lchown", "fchown", "fchownat", "utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *("inotify_add_watch", "memfd_secret", "landlock_create_ruleset"),
    # Shared memory and queues have names too.
    *("shmget", "semget", "msgget", "mq_open", "mq_unlink"),
)
_SERVERS: Final = ("bind", "listen", "accept", "accept4")
_NEW_CALLS: Final = range(450, 512)
"""The numbers of system calls that libseccomp may not know, the same on each machine.

There are ways to mount files and to change their modes among them.  Programs do without.
"""


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """What a process may use, beside the system's programs and libraries.

    :ivar directory: its working directory: it is the same path inside, where it is empty
    :ivar copies: files to copy, if they exist: the process alone can read the copies
    :ivar writable: existing files of its user that it may write
    :ivar placeholders: paths of empty files
    :ivar ports: the TCP ports that it may connect to; None: all
    :ivar datagrams: whether it may use UDP, such as to ask for the addresses of names
    :ivar capability: the one that it has; None: none
    """

    directory: str
    copies: Sequence[str] = ()
    writable: Sequence[str] = ()
    placeholders: Sequence[str] = ()
    ports: Sequence[int] | None = None
    datagrams: bool = False
    capability: int | None = None

    @property
    def user(self) -> int:
        """Return the id of its user and group: it follows from the directory."""
        digest = hashlib.sha256(os.fsencode(self.directory)).digest()
        return USERS[int.from_bytes(digest[:8], "big") % len(USERS)]

    def command_line(self, fds: Sequence[int], *line: str) -> list[str]:
        """Return the command line of the launcher, which executes ``line``.

        :param fds: that it inherits, and that get the numbers from FIRST_FD on
        """
        values = json.dumps({**dataclasses.asdict(self), "fds": fds})
        return [sys.executable, "-I", "-S", __file__, values, *line]


@dataclasses.dataclass(frozen=True)
class Confinement:
    """What a program may use that needs no network, beside the system's programs and libraries.

    It has the user of this process, or of root's processes the user "nobody".

    :ivar readable: descriptors of files that it inherits, and may open again
    :ivar writable: the same of files that it may write
    :ivar memory_bytes: of address space
    :ivar cpu_seconds: of a processor
    :ivar file_bytes: of each file that it writes
    """

    readable: Sequence[int]
    writable: Sequence[int]
    memory_bytes: int
    cpu_seconds: int
    file_bytes: int

    def command_line(self, *line: str) -> list[str]:
        """Return the command line of the launcher, which executes ``line``."""
        values = json.dumps({"confinement": dataclasses.asdict(self)})
        return [sys.executable, "-I", "-S", __file__, values, *line]


def missing_requirements() -> list[str]:
    """List what a sandbox needs and this machine does not have."""
    try:
        ctypes.CDLL(SECCOMP_LIBRARY)
    except OSError:
        return [f"{SECCOMP_LIBRARY} (package libseccomp2)"]
    return []


class _Libc:
    """System calls, which raise OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __call__(self, name: str, *arguments: object) -> int:
        """Call a function of libc."""
        result: int = getattr(self._libc, name)(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
        return result

    def mount(self, source: str, target: str, kind: str | None, flags: int) -> None:
        """Mount a file system."""
        kind_bytes = kind.encode() if kind else None
        data = b"mode=755,size=16m" if kind == "tmpfs" else None
        paths = (os.fsencode(source), os.fsencode(target))
        self("mount", *paths, kind_bytes, ctypes.c_ulong(flags), data)

    def bind(self, source: str, target: str, flags: int) -> None:
        """Show a file or directory of the host with other mount flags."""
        self.mount(source, target, None, _MS_BIND)
        self.mount(source, target, None, _MS_BIND | _MS_REMOUNT | flags)

    def prctl(self, *arguments: int) -> int:
        """Change this process."""
        values = (*arguments, 0, 0, 0, 0)[:5]
        return self("prctl", *map(ctypes.c_ulong, values))

    def has_capability(self, number: int) -> bool:
        """Return whether the bounding set has a capability; the kernel may have fewer."""
        try:
            return bool(self.prctl(_PR_CAPBSET_READ, number))
        except OSError:
            return False


def _build_root(libc: _Libc, sandbox: Sandbox) -> None:
    """Make a root directory, and leave that of the host.

    Others see the working directory under its path throughout, except for a moment between
    :data:`TRANSIENT_DIRECTORIES`.
    """
    copies = {path: content for path in (*_SETTINGS, *sandbox.copies) if (content := _read(path))}
    libc("unshare", _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC)
    # Unmounts of the host take effect here, until its mounts are detached.
    libc.mount("none", "/", None, _MS_REC | _MS_SLAVE)
    libc.mount("none", _ROOT, "tmpfs", _MS_NOSUID | _MS_NODEV)
    for path in _PROGRAMS:
        _show_programs(libc, path)
    for path in _DEVICES:
        libc.bind(path, _make_file(path), _MS_NOSUID | _MS_NOEXEC)
    for path in sandbox.writable:
        libc.bind(path, _make_file(path), _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    for path in sandbox.placeholders:
        _make_file(path)
    for path, content in copies.items():
        _write_copy(path, content, sandbox.user)
    Path(f"{_ROOT}{sandbox.directory}").mkdir(parents=True, exist_ok=True)
    os.chdir(_ROOT)
    libc("pivot_root", b".", b".")
    # The former root lies over the new one.
    libc("umount2", b".", _MNT_DETACH)
    libc.mount("none", "/", None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir(sandbox.directory)


def _show_programs(libc: _Libc, path: str) -> None:
    target = Path(f"{_ROOT}{path}")
    if Path(path).is_symlink():
        target.symlink_to(Path(path).readlink())
    elif Path(path).is_dir():
        target.mkdir()
        libc.bind(path, f"{target}", _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _make_file(path: str) -> str:
    target = Path(f"{_ROOT}{path}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(0o444)
    return f"{target}"


def _write_copy(path: str, content: bytes, user: int) -> None:
    target = Path(_make_file(path))
    target.chmod(0o400)
    target.write_bytes(content)
    os.chown(target, user, user)


def _read(path: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return Path(path).read_bytes()
    return None


def _drop_rights(libc: _Libc, user: int, capability: int | None) -> None:
    """Become the user, with no capability or one, and none to gain."""
    for number in filter(libc.has_capability, range(64)):
        if number != capability:
            libc.prctl(_PR_CAPBSET_DROP, number)
    if capability is not None:
        libc.prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    bit = 0 if capability is None else 1 << capability
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION_3, 0)
    # Effective, permitted and inheritable, first the lower 32.
    libc("capset", header, (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0))
    if capability is not None:
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


def _limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_SIZE, _MAX_FILE_SIZE))
    # A full log is an error of one write(), and not the end of the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def limit_ports(ports: Iterable[int] | None) -> None:
    """Limit TCP to some ports, and forbid abstract sockets, as far as the kernel can.

    It holds for this thread and those that it starts, which can gain no rights any more.

    :param ports: to connect to; None: all
    """
    libc = _Libc()
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    try:
        abi = libc("syscall", _LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    except OSError:
        return  # It is disabled, or the kernel older than 5.13.
    if abi < _NET_ABI:
        return
    # Files: none handled; TCP: bind and connect; scopes: abstract sockets and signals.
    rules = (ctypes.c_uint64 * 3)(0, 3 if ports is not None else 0, 3 if abi >= _SCOPE_ABI else 0)
    size = ctypes.sizeof(rules) if abi >= _SCOPE_ABI else 16
    if not any(rules):
        return
    ruleset = libc("syscall", _LANDLOCK_CREATE, rules, ctypes.c_size_t(size), 0)
    for port in ports or ():
        rule = (ctypes.c_uint64 * 2)(2, port)
        libc("syscall", _LANDLOCK_ADD, ruleset, _LANDLOCK_PORT, rule, 0)
    libc("syscall", _LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _limit_files(confinement: Confinement) -> None:
    """Hide all files but those of the system's programs and those that are inherited.

    :raises OSError: the kernel has no Landlock
    """
    libc = _Libc()
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    try:
        abi = libc("syscall", _LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    except OSError as error:
        raise OSError(error.errno, "the kernel has no Landlock (Linux 5.13)") from error
    every = _ALL_RIGHTS[min(abi, len(_ALL_RIGHTS) - 1)]
    ruleset = libc(
        "syscall", _LANDLOCK_CREATE, (ctypes.c_uint64 * 1)(every), ctypes.c_size_t(8), 0
    )

    def permit(fd: int, rights: int) -> None:
        # struct landlock_path_beneath_attr is packed.
        rule = (rights & every).to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        libc("syscall", _LANDLOCK_ADD, ruleset, _LANDLOCK_PATH, rule, 0)

    for path in (*_PROGRAMS, *_SETTINGS[:1], *_DEVICES):
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            is_folder = Path(path).is_dir()
            permit(fd, _READ_FILE | (_EXECUTE | _READ_DIR if is_folder else _WRITE_FILE))
            os.close(fd)
    for fd in confinement.readable:
        permit(fd, _READ_FILE)
    for fd in confinement.writable:
        permit(fd, _READ_FILE | _WRITE_FILE | _TRUNCATE)
    libc("syscall", _LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _confine(confinement: Confinement) -> None:
    """Give up all that a program does not need that only reads and writes its files."""
    fds = (*confinement.readable, *confinement.writable)
    denied = _new_filter(datagrams=False)
    for name in ("socket", "socketpair", *_SERVERS):
        denied.deny(name, error=_EACCES)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: confinement.memory_bytes,
        resource.RLIMIT_CPU: confinement.cpu_seconds,
        resource.RLIMIT_FSIZE: confinement.file_bytes,
    }
    for fd in fds:
        os.set_inheritable(fd, True)
        if os.geteuid() == 0:
            os.fchown(fd, NOBODY, NOBODY)
    _limit_files(confinement)
    if os.geteuid() == 0:
        _drop_rights(_Libc(), NOBODY, None)
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    denied.load()


class _Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


class _SystemCallFilter:
    """A seccomp filter, which permits all other system calls.

    :raises OSError: of its methods, if the kernel refuses
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(SECCOMP_LIBRARY)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(_ALLOW))

    def deny(self, name: str, *comparison: int, error: int = _EPERM) -> None:
        """Let a system call fail.

        :param comparison: of an argument: its number, an operator and one or two values
        """
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # This architecture, or an older library, may have none.
            self.deny_number(number, *comparison, error=error)

    def deny_number(self, number: int, *comparison: int, error: int = _EPERM) -> None:
        """Let a system call fail, by its number."""
        values = (_Comparison * 1)(_Comparison(*comparison))
        self._check(
            self._library.seccomp_rule_add_array(
                self._context, _ERRNO | error, number, 1 if comparison else 0, values
            )
        )

    def load(self, *, all_threads: bool = False) -> None:
        """Apply the filter to this thread and those that it starts, for ever."""
        self._check(
            self._library.seccomp_attr_set(self._context, _SYNCHRONIZE_THREADS, int(all_threads))
        )
        self._check(self._library.seccomp_load(self._context))

    @staticmethod
    def _check(result: int) -> None:
        if result < 0:
            raise OSError(-result, f"seccomp: {os.strerror(-result)}")


def _new_filter(*, datagrams: bool) -> _SystemCallFilter:
    denied = _SystemCallFilter()
    for name in _DENIED:
        denied.deny(name)
    # A process may end itself, and know its limits.
    for name, itself in {
        "tgkill": os.getpid(),
        "rt_tgsigqueueinfo": os.getpid(),
        "prlimit64": 0,
    }.items():
        denied.deny(name, 0, _NE, itself)
    for number in _NEW_CALLS:
        denied.deny_number(number, error=_ENOSYS)
    # Threads, but no processes.  The C library takes clone() if there is no clone3().
    denied.deny("clone3", error=_ENOSYS)
    denied.deny("clone", 0, _MASKED_EQ, _CLONE_THREAD, 0)
    _deny_sockets(denied, datagrams=datagrams)
    return denied


def _deny_sockets(denied: _SystemCallFilter, *, datagrams: bool) -> None:
    """Leave those of TCP, and of UDP perhaps.

    Landlock does not see where MPTCP and the first message of TCP Fast Open connect to.
    """
    lowest, highest = sorted((socket.AF_INET, socket.AF_INET6))
    denied.deny("socket", 0, _LT, lowest, error=_EACCES)
    denied.deny("socket", 0, _GT, highest, error=_EACCES)
    for family in range(lowest + 1, highest):
        denied.deny("socket", 0, _EQ, family, error=_EACCES)
    kinds = [socket.SOCK_RAW, _SOCK_RDM, socket.SOCK_SEQPACKET, _SOCK_DCCP, _SOCK_PACKET]
    for kind in (*([] if datagrams else [socket.SOCK_DGRAM]), *kinds):
        denied.deny("socket", 1, _MASKED_EQ, _SOCK_TYPE_MASK, kind, error=_EACCES)
    known = (socket.IPPROTO_IP, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
    denied.deny("socket", 2, _GT, max(known), error=_EACCES)
    for protocol in set(range(max(known))) - set(known):
        denied.deny("socket", 2, _EQ, protocol, error=_EACCES)
    for name, flags in _FLAGS_OF_MESSAGES.items():
        denied.deny(name, flags, _MASKED_EQ, _MSG_FASTOPEN, _MSG_FASTOPEN, error=_EACCES)


def give_up_files() -> None:
    """Give up all files, programs, other processes and servers, in all threads of this process.

    What is open stays so, and TCP may connect to where :func:`limit_ports` permits it.  Root
    becomes the user "nobody".

    :raises OSError: there is no libseccomp, or the kernel has no such filters
    """
    denied = _new_filter(datagrams=False)
    for name in (*_FILES, *_SERVERS):
        denied.deny(name, error=_EACCES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    denied.load(all_threads=True)


def _move_fds(fds: Sequence[int]) -> None:
    """Give file descriptors the numbers from FIRST_FD on, and close all others."""
    # First out of the way of each other.
    copies = [os.dup2(fd, 1000 + number) for number, fd in enumerate(fds)]
    for number, copy in enumerate(copies, start=FIRST_FD):
        os.dup2(copy, number)
    os.closerange(FIRST_FD + len(fds), 2**16)


def main(values: str, *line: str) -> NoReturn:
    """Enter the sandbox, and execute a command, whose first word is a path."""
    parsed = json.loads(values)
    if "confinement" in parsed:
        _confine(Confinement(**parsed["confinement"]))
        os.execv(line[0], line)  # noqa: S606 (a list of arguments, no shell)
    fds = parsed.pop("fds")
    sandbox = Sandbox(**parsed)
    libc = _Libc()
    denied = _new_filter(datagrams=sandbox.datagrams)
    os.umask(0o022)
    _move_fds(fds)
    _build_root(libc, sandbox)
    _limit_resources()
    _drop_rights(libc, sandbox.user, sandbox.capability)
    limit_ports(sandbox.ports)
    denied.load()
    os.execv(line[0], line)  # noqa: S606 (a list of arguments, no shell)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(
            f"The sandbox cannot be entered: {error}. It needs {SECCOMP_LIBRARY}, and root; or, "
            "for a program that converts images, Landlock."
        )
