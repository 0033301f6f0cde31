# SPDX-License-Identifier: Apache-2.0
"""A sandbox for a program that works on what others have written; for drivers.

It is a filter of the kernel for system calls, which any user can apply, and a process that runs:
see seccomp(2).  The sandbox of agents, attachd/sandbox.py, starts programs, and needs root.
"""

import ctypes
import os
import platform
import resource
import struct
from typing import Final, NamedTuple

from attachd import exception

NOBODY: Final = 65534
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_EACCES: Final = 0x0005000D
# Instructions: load a word of the call, compare and jump, return.
_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_INSTRUCTION: Final = struct.Struct("HBBI")
_CALL_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_X32: Final = 0x40000000


class _Calls(NamedTuple):
    """The numbers of system calls of an architecture, and its number in the filter.

    :ivar refused: open, openat, openat2, creat, open_by_handle_at, execve, execveat,
        io_uring_setup, ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, mount, unlink,
        unlinkat, rename, renameat, renameat2, truncate, mknod, mknodat, as far as there are such
    """

    architecture: int
    seccomp: int
    refused: tuple[int, ...]


_CALLS: Final = {
    "x86_64": _Calls(
        0xC000003E,
        317,
        (
            *(2, 257, 437, 85, 304, 59, 322, 425, 101, 310, 311, 438, 165),
            *(87, 263, 82, 264, 316, 76, 133, 259),
        ),
    ),
    "aarch64": _Calls(
        0xC00000B7,
        277,
        (56, 437, 265, 221, 281, 425, 117, 270, 271, 438, 40, 35, 38, 276, 45, 33),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def enter() -> None:
    """Give up all files and all programs, in all threads; what is open stays so.

    Root becomes the user "nobody".

    :raises BackendError: the kernel or the machine has no such filters
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise _refused(f"machines of the kind {platform.machine()} are not known")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(_program(calls))
    length = (len(code) - 1) // _INSTRUCTION.size
    program = _Program(length, ctypes.addressof(code))
    arguments = (calls.seccomp, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(program))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(*arguments):
        raise _refused(os.strerror(ctypes.get_errno()))


def _program(calls: _Calls) -> bytes:
    """Return the filter: refused calls fail, those of another architecture end the process."""
    count = len(calls.refused)
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, calls.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _CALL_AT),
        (_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        *((_IF_EQUAL, count - index, 0, call) for index, call in enumerate(calls.refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EACCES),
    ]
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in instructions)


def _refused(reason: str) -> exception.BackendError:
    return exception.BackendError(f"No sandbox can be made: {reason}.", final=True)
