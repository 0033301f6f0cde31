# SPDX-License-Identifier: Apache-2.0
"""A compute host of the cloud in a virtual machine, whose kernel has initiators and mounts shares.

The machine of the tests may have neither.  Its packages of libvirt and QEMU, and the Nova of the
cloud, are copied to the virtual machine, which is one of the lab.  The guests of the host use the
virtualization (SVM) that QEMU emulates for it: without it they would be emulated twice.
"""

from collections.abc import Callable
import os
from pathlib import Path
import re
import shutil
import subprocess
import tarfile
import tempfile
from typing import Any, Final

from attachd.tests.lab import file_server, forwarder, guests
from attachd.tests.nova import cloud as clouds
from attachd.tests.nova.guest_image import libraries
from attachd.tests.wait import wait_until

SECONDS: Final = 900.0
"""How long to wait for the host or a guest: on a busy machine each step takes minutes."""

LAB: Final = "lab"
"""The command of the lab, in the folder that has the scripts of the cloud."""

_MEMORY_MIB: Final = 2048
_INSTANCES: Final = "/var/lib/nova/instances"
_LOG: Final = "/var/log/nova-compute.log"
_LIBVIRT_PACKAGES: Final = ("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt0")
_PACKAGES: Final = (
    *_LIBVIRT_PACKAGES, "libvirt-clients", "python3-libvirt", "qemu-system-common",
    "qemu-system-data", "qemu-system-x86", "seabios",
)  # fmt: skip
_DRIVERS: Final = "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver"
_NOT_COPIED: Final = re.compile(
    r"/usr/share/(doc|man|locale|bash-completion|lintian|augeas)/|/libvirt_driver_(lxc|vbox|libxl)"
)
_NOT_IMPORTED: Final = {"numpy", "numpy.libs", "pip", "setuptools", "pygments", "uwsgi"}
"""What is installed with Nova, but not imported by nova-compute."""

_VIRT: Final = "virt.tar"
_NOVA: Final = "nova.img"

_INSTALL: Final = f"""\
set -e
modprobe kvm_amd || modprobe kvm_intel
busybox wget -q -O - {{url}}/{_VIRT} | tar x --skip-old-files -C /
busybox wget -q -O /var/lib/{_NOVA} {{url}}/{_NOVA}
ldconfig
mkdir -p /opt/nova /etc/nova {_INSTANCES} /var/log/libvirt /var/lib/libvirt/qemu
mount -o loop,ro /var/lib/{_NOVA} /opt/nova
groupadd --system libvirt
useradd --system --no-create-home libvirt-qemu
cat > /etc/libvirt/libvirtd.conf <<END
auth_unix_rw = "none"
auth_unix_ro = "none"
END
cat > /etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
stdio_handler = "file"
cgroup_controllers = [ ]
namespaces = [ ]
END
libvirtd --daemon
until virsh --connect qemu:///system version > /dev/null 2>&1; do sleep 1; done
virsh --connect qemu:///system capabilities | grep -q "domain type='kvm'"
"""
_START: Final = f"""\
cat > /etc/nova/nova.conf
PYTHONPATH=/opt/nova setsid python3 -c 'import sys; from nova.cmd.compute import main; main()' \
    --config-file /etc/nova/nova.conf > {_LOG} 2>&1 < /dev/null &
"""
_OPTIONS: Final = {
    "state_path": "/var/lib/nova",
    "lock_path": "/var/lib/nova/locks",
    "helper_command": "python3 -m oslo_privsep.daemon --config-file /etc/nova/nova.conf",
    "connection_uri": "qemu:///system",
    "virt_type": "kvm",
    # What costs an emulated host time.
    "debug": "false",
    "report_interval": "10",
}


class KernelHost:
    """The compute host, until the cleanups that it registers.

    :ivar lab: the lab that it is in
    :ivar name: of the compute service
    """

    def __init__(self, cloud: Any, add_cleanup: Callable[..., Any]) -> None:
        """Boot it, and wait until Nova has it."""
        self._cloud = cloud
        command = Path(os.environ[clouds.VARIABLE]).absolute().parent / LAB
        self.lab = guests.Lab(command)
        add_cleanup(self.lab.down)
        (self._guest,) = self.lab.up(hosts=1, memory_mib=_MEMORY_MIB)
        self.name = self._guest.name
        self._install(add_cleanup)
        first = int(os.environ["NR_PORT"])
        ports = [*range(first, first + 10), _broker_port()]
        add_cleanup(forwarder.start(self._guest, ports).kill)
        add_cleanup(self._forget)
        self._guest.run(_START, self._configuration().encode())
        wait_until(self._is_known, self.log, timeout=SECONDS, interval=2)

    def _install(self, add_cleanup: Callable[..., Any]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="attachd-test-"))
        add_cleanup(shutil.rmtree, folder)
        _pack_virtualization(folder / _VIRT)
        _pack_nova(folder / _NOVA)
        self._guest.run(_INSTALL.format(url=file_server.start(add_cleanup, folder)))

    def _configuration(self) -> str:
        """Return the configuration of the host with libvirt, as it has to be for this one."""
        text = Path(f"{self._cloud.ETC}/compute3/nova.conf").read_text(encoding="utf-8")
        return clouds.replace_options(text, {**_OPTIONS, "host": self.name})

    def _services(self) -> list[Any]:
        path = f"/os-services?binary=nova-compute&host={self.name}"
        services: list[Any] = self._cloud.ADMIN.ok("compute", "GET", path)["services"]
        return services

    def _is_known(self) -> bool:
        """Return whether servers can be placed on it: it has a service, a node, and a cell."""
        states = [service["state"] for service in self._services()]
        mapped = self._cloud.sql("nova_api", "SELECT host FROM host_mappings")
        return states == ["up"] and (self.name,) in mapped

    def _forget(self) -> None:
        """Remove it from Nova."""
        for service in self._services():
            self._cloud.ADMIN.ok("compute", "DELETE", f"/os-services/{service['id']}")

    def log(self) -> str:
        """Return the end of the log of nova-compute."""
        return self._guest.run(f"tail --bytes=4000 {_LOG}").decode(errors="replace")

    def console(self, server: str) -> str:
        """Return what the guest of a server has written; nothing before it has a console."""
        line = f"cat {_INSTANCES}/{server}/console.log 2> /dev/null || true"
        return self._guest.run(line).decode(errors="replace")

    def devices(self) -> list[str]:
        """List the disks of volumes that the host has."""
        return [name for name in self._guest.devices() if not name.startswith("loop")]

    def shares(self) -> list[str]:
        """List the shares that the host has mounted."""
        return self._guest.run("grep ' nfs4 ' /proc/mounts || true").decode().splitlines()


def _broker_port() -> int:
    return int(os.environ.get("NR_RABBIT", "127.0.0.1:5672").rpartition(":")[2])


def _pack_virtualization(path: Path) -> None:
    """Pack libvirt and QEMU, and the libraries that they load, as they are on this machine."""
    listed = _run("dpkg", "--listfiles", *_PACKAGES).decode().splitlines()
    files = {
        Path(name) for name in listed if name.startswith("/") and not _NOT_COPIED.search(name)
    }
    programs = [
        *Path(_DRIVERS).glob("*.so"),
        *map(Path, ("/usr/sbin/libvirtd", "/usr/bin/virsh", "/usr/bin/qemu-system-x86_64")),
    ]
    for program in files.intersection(programs):
        for library in libraries(f"{program}"):
            files |= {library, library.resolve()}
    with tarfile.open(path, "w") as tar:
        for file in sorted(files):
            if not file.is_dir() and (file.exists() or file.is_symlink()):
                tar.add(file)


def _pack_nova(path: Path) -> None:
    """Make a disk with the Nova of the cloud: to unpack its many files would take minutes."""
    (site,) = Path(os.environ["ACCEPT_VENV"], "nova").glob("lib/python3.*/site-packages")

    def ignore(folder: str, names: list[str]) -> set[str]:
        ignored = {"tests", "locale"}
        if Path(folder) == site:
            ignored |= {name for name in names if name.partition("-")[0] in _NOT_IMPORTED}
        return ignored.intersection(names)

    with tempfile.TemporaryDirectory(prefix="attachd-test-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(site, tree, symlinks=True, ignore=ignore)
        # A block of 4 KiB for each file and folder, and a fifth for what the file system needs.
        size = sum(entry.lstat().st_size + 4096 for entry in tree.rglob("*")) * 6 // 5
        _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-N", "40000", "-d", tree, path,
             f"{size // 1024}k")  # fmt: skip


def _run(*line: object) -> bytes:
    return subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, check=True).stdout
