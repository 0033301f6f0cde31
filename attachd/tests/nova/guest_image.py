# SPDX-License-Identifier: Apache-2.0
"""A disk for guests of Nova that have file systems on their volumes, and let them grow.

It is the disk of the scripts with another init, and with the tools of ext4 and xfs.
"""

from pathlib import Path
import shutil
import subprocess
import tempfile
from typing import Final
import unittest

from attachd.tests.fixtures import requirements

_TOOLS: Final = ("mkfs.ext4", "resize2fs", "mkfs.xfs", "xfs_growfs")

# The console shows the size of the device in sectors, that of the file system in KiB, and the
# checksum of a file: GROWTH DISK SECTORS KIB CHECKSUM
_INIT: Final = """\
#!/bin/busybox sh
export PATH=/sbin:/bin
/bin/busybox --install -s /bin
mkdir -p /etc; ln -s /proc/mounts /etc/mtab
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod $module 2> /dev/null; done
exec > /dev/ttyS0 2>&1
echo "ACCEPT up $(cat /sys/class/dmi/id/product_uuid)"
use() {  # DISK TYPE GROW...
    disk=$1 type=$2; shift 2
    [ -e /sys/block/$disk ] || return
    if ! grep -q "^/dev/$disk " /proc/mounts; then
        mkdir -p /mnt/$disk
        mount -t $type /dev/$disk /mnt/$disk 2> /dev/null || {
            mkfs.$type -q /dev/$disk
            mount -t $type /dev/$disk /mnt/$disk
            dd if=/dev/urandom of=/mnt/$disk/file bs=1M count=1 2> /dev/null
            sync
        }
    fi
    sectors=$(cat /sys/block/$disk/size)
    [ "$sectors" = "$(cat /size.$disk 2> /dev/null)" ] && return
    "$@"
    echo $sectors > /size.$disk
    echo 3 > /proc/sys/vm/drop_caches
    set -- $(df -k /mnt/$disk | tail -n 1) $(md5sum /mnt/$disk/file)
    echo "GROWTH $disk $sectors $2 $7"
}
while :; do
    use vdb ext4 resize2fs /dev/vdb
    use vdc xfs xfs_growfs /mnt/vdc
    sleep 1
done
"""


def build(test: unittest.TestCase, base: Path) -> bytes:
    """Return the content of the disk.

    :param base: the disk of the scripts; its boot loader loads the file ``initrd``
    """
    with tempfile.TemporaryDirectory(prefix="attachd-test-") as folder:
        root, disk, initrd = (Path(folder, name) for name in ("root", "disk", "initrd"))
        _fill(test, root)
        shutil.copyfile(base, disk)
        _run("mcopy", "-i", disk, "::initrd", initrd)
        # The kernel unpacks one archive after the other: a file of the last one replaces others.
        with initrd.open("ab") as archive:
            archive.write(_archive(root))
        _run("mcopy", "-o", "-i", disk, initrd, "::initrd")
        return disk.read_bytes()


def _fill(test: unittest.TestCase, root: Path) -> None:
    for name in _TOOLS:
        tool = requirements.require_tool(test, name)
        for library in libraries(tool):
            _copy(library, root / str(library).removeprefix("/usr").lstrip("/"))
        _copy(Path(tool), root / "sbin" / name)
    for number, module in enumerate(_modules()):
        # Later than those of the scripts, and each after those that it needs.
        _copy(module, root / "modules" / f"filesystem{number}.ko")
    (root / "init").write_text(_INIT, encoding="utf-8")
    (root / "init").chmod(0o755)


def libraries(tool: str) -> list[Path]:
    """Return the paths of the libraries that a program or another library loads."""
    words = _run("ldd", tool).decode().split()
    return [Path(word) for word in words if word.startswith("/")]


def _modules() -> list[Path]:
    """Return the modules of xfs, of the kernel that the disk boots; ext4 is in the kernel."""
    version = max(Path("/lib/modules").glob("*-cloud-amd64")).name
    lines = _run("/sbin/modprobe", "-S", version, "--show-depends", "xfs").decode().splitlines()
    return [Path(line.split()[1]) for line in lines if line.startswith("insmod ")]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _archive(root: Path) -> bytes:
    return _run("sh", "-c", f"cd '{root}' && find . | cpio -o -H newc --quiet | gzip -1")


def _run(*line: object) -> bytes:
    return subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, check=True).stdout
