# SPDX-License-Identifier: Apache-2.0
"""Shut down a mounted file system; run as a program by device_writers.py, as the kernel may hang.

Its users get errors from then on.  What was not written yet is lost, as in a power failure.  The
ioctl is that of ext4, XFS, F2FS, and in newer kernels of others.

Source: the kernel's include/uapi/linux/fs.h, FS_IOC_SHUTDOWN, and fs/xfs/libxfs/xfs_fs.h.
"""

import errno
import fcntl
import os
import struct
import sys

_FS_IOC_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSH = 2


def main() -> None:
    """Shut down the file system at a path; its arguments are that and its device number."""
    path, number = sys.argv[1:]
    try:
        # A file may be a pipe, whose opening would wait.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if os.fstat(file).st_dev != int(number):
            sys.exit(f"{path} is covered by another mount")
        fcntl.ioctl(file, _FS_IOC_SHUTDOWN, struct.pack("=I", _WITHOUT_FLUSH))
    except OSError as error:
        # XFS refuses to open anything after it was shut down.
        if error.errno != errno.EIO:
            sys.exit(f"{path}: {error.strerror}")


if __name__ == "__main__":
    main()
