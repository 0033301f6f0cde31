# SPDX-License-Identifier: Apache-2.0
"""Read the size of a file system, or let it grow; run as a program by growth.py, as it may hang.

The kernel lets a mounted file system grow, by an ioctl.  The tools that also do so, such as
resize2fs, parse what is on the device, which may have been made as an attack, with the rights of
root.  This program reads some numbers of a superblock and nothing else.

Source: the kernel's include/uapi/linux/ext4.h and btrfs.h, fs/xfs/libxfs/xfs_fs.h, fs/ext4/ext4.h
and fs/xfs/libxfs/xfs_format.h.
"""

import fcntl
import os
from pathlib import Path
import struct
import sys
from typing import Final

EXT_TYPES: Final = frozenset({"ext2", "ext3", "ext4"})
"""The types that the kernel's ext4 handles."""

_EXT4_IOC_RESIZE_FS: Final = 0x40086610
_XFS_IOC_FSGEOMETRY_V1: Final = 0x80705864
_XFS_IOC_FSGROWFSDATA: Final = 0x4010586E
_BTRFS_IOC_RESIZE: Final = 0x50009403
_BTRFS_IOC_DEV_INFO: Final = 0xD000941E
_BTRFS_IOC_FS_INFO: Final = 0x8400941F

_EXT_MAGIC: Final = b"\x53\xef"
_EXT_HAS_JOURNAL: Final = 0x4
_EXT_EXTENTS: Final = 0x40
_EXT_64BIT: Final = 0x80
_MAX_EXT_BLOCK: Final = 6
_BTRFS_SUPERBLOCK: Final = 65536


def main() -> None:
    """Print the type of a file system, its size in bytes, and the size of its blocks.

    The arguments are the device; the mountpoint, "" if it is not mounted; the ID of the mount and
    the type, as in mountinfo; and the size in bytes to grow to, 0 to let it be as it is.
    """
    device, mountpoint, mount_id, fs_type, size = sys.argv[1:]
    try:
        if not mountpoint:
            sys.stdout.write(_line(*read_superblock(Path(device))))
            return
        # A file may be a pipe, whose opening would wait.
        file = os.open(mountpoint, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if f"mnt_id:\t{mount_id}\n" not in Path(f"/proc/self/fdinfo/{file}").read_text():
            sys.exit(f"{mountpoint} is covered by another mount")
        if int(size):
            grow(file, fs_type, Path(device), int(size))
        sys.stdout.write(_line(fs_type, *read(file, fs_type, Path(device))))
    except OSError as error:
        sys.exit(f"{mountpoint or device}: {error.strerror}")


def _line(fs_type: str, size: int, block: int) -> str:
    return f"{fs_type} {size} {block}\n"


def read(file: int, fs_type: str, device: Path) -> tuple[int, int]:
    """Return the size of a mounted file system in bytes, and that of its blocks.

    :param file: the open root directory
    :returns: 0 and 0 of one that cannot grow here
    """
    if fs_type in EXT_TYPES:
        return read_superblock(device)[1:]
    if fs_type == "xfs":
        block, _ratio, blocks = _read_xfs(file)
        return block * blocks, block
    if fs_type == "btrfs":
        _number, size = _read_btrfs(file)
        return (size, 4096) if size else (0, 0)
    return 0, 0


def grow(file: int, fs_type: str, device: Path, size: int) -> None:
    """Let a mounted file system grow to a size in bytes; one that is as large stays as it is."""
    present, block = read(file, fs_type, device)
    if not block:
        sys.exit(f"this {fs_type} cannot grow by one device: use its own tools")
    blocks = size // block
    if present >= blocks * block:
        return
    if fs_type in EXT_TYPES:
        fcntl.ioctl(file, _EXT4_IOC_RESIZE_FS, struct.pack("=Q", blocks))
    elif fs_type == "xfs":
        _block, ratio, _blocks = _read_xfs(file)
        fcntl.ioctl(file, _XFS_IOC_FSGROWFSDATA, struct.pack("=QI4x", blocks, ratio))
    else:
        number, _size = _read_btrfs(file)
        # struct btrfs_ioctl_vol_args
        fcntl.ioctl(
            file, _BTRFS_IOC_RESIZE, bytearray(struct.pack("=q4088s", 0, b"%d:max" % number))
        )


def read_superblock(device: Path) -> tuple[str, int, int]:
    """Return the type, the size in bytes and the size of the blocks of what is on a device.

    :returns: "", 0 and 0 if it is none that could grow
    """
    with device.open("rb") as disk:
        head = disk.read(2048)
        if head[:4] == b"XFSB":
            block, blocks = struct.unpack_from(">IQ", head, 4)
            return "xfs", block * blocks, block
        ext = head[1024:]
        if ext[0x38:0x3A] == _EXT_MAGIC:
            return _parse_ext(ext)
        disk.seek(_BTRFS_SUPERBLOCK)
        block = disk.read(4096)
        if block[0x40:0x48] == b"_BHRfS_M":
            # The number of bytes of this device, in its dev_item.
            return "btrfs", struct.unpack_from("<Q", block, 0xD1)[0], 4096
    return "", 0, 0


def _parse_ext(superblock: bytes) -> tuple[str, int, int]:
    low, logarithm = (struct.unpack_from("<I", superblock, offset)[0] for offset in (4, 0x18))
    compatible, incompatible = struct.unpack_from("<II", superblock, 0x5C)
    high = struct.unpack_from("<I", superblock, 0x150)[0] if incompatible & _EXT_64BIT else 0
    fs_type = "ext3" if compatible & _EXT_HAS_JOURNAL else "ext2"
    block = 1024 << min(logarithm, _MAX_EXT_BLOCK)
    return "ext4" if incompatible & _EXT_EXTENTS else fs_type, (high << 32 | low) * block, block


def _read_xfs(file: int) -> tuple[int, int, int]:
    """Return the size of a block, the highest percentage of inodes, and the number of blocks."""
    geometry = fcntl.ioctl(file, _XFS_IOC_FSGEOMETRY_V1, bytes(112))
    block, ratio, blocks = struct.unpack_from("=I24xIQ", geometry)
    return block, ratio, blocks


def _read_btrfs(file: int) -> tuple[int, int]:
    """Return the number and the size in bytes of the only device of a btrfs; 0: it has several."""
    number, count = struct.unpack_from("=QQ", fcntl.ioctl(file, _BTRFS_IOC_FS_INFO, bytes(1024)))
    if count != 1:
        return 0, 0
    asked = bytearray(struct.pack("=Q", number).ljust(4096, b"\0"))
    fcntl.ioctl(file, _BTRFS_IOC_DEV_INFO, asked)
    return number, struct.unpack_from("=Q", asked, 32)[0]


if __name__ == "__main__":
    main()
