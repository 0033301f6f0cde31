# SPDX-License-Identifier: Apache-2.0
"""DH-CHAP keys of hosts, from a file of the operator; for nvmet.py.

os-brick passes no key to "nvme connect", which takes that of its host from /etc/nvme/config.json.
So a key belongs to a host, and not to an attachment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
import re
import stat
from typing import Final

from attachd import exception
from attachd.drivers.lvm import configfs

_ATTRIBUTE: Final = "dhchap_key"
_KEY: Final = re.compile(r"DHHC-1:0[0-3]:[A-Za-z0-9+/]+=*:")


@dataclass(frozen=True)
class HostKeys:
    """The keys of hosts by their NQNs.

    :ivar path: of the file, with a line "NQN KEY" for each host; "": hosts have no keys
    """

    path: str = ""

    @property
    def are_required(self) -> bool:
        """Whether hosts need keys."""
        return bool(self.path)

    def read(self) -> Mapping[str, str]:
        """Read the file, which may have changed; empty if hosts have no keys.

        :raises BackendError: it cannot be read, is readable by all users, or has another line
        """
        if not self.are_required:
            return {}
        try:
            mode = Path(self.path).stat().st_mode
            lines = Path(self.path).read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise self._error(f"cannot be read: {error}") from error
        if mode & stat.S_IROTH:
            raise self._error("is readable by all users: change its mode to 0600")
        keys = {}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not _KEY.fullmatch(words[1]):  # noqa: PLR2004 (NQN and key)
                raise self._error(
                    f"has no NQN and key as of 'nvme gen-dhchap-key' in line {number}"
                )
            keys[words[0]] = words[1]
        return keys

    def check(self, tree: configfs.Tree, probe: Path) -> None:
        """Check the file, and that the kernel has keys.

        :param probe: the directory of a host that does not exist
        :raises BackendError: naming the option
        """
        if not self.are_required:
            return
        self.read()
        tree.make(probe)
        supported = (probe / _ATTRIBUTE).exists()
        tree.remove(probe)
        if not supported:
            raise exception.BackendError(
                "lvm_host_keys: this kernel has no DH-CHAP for NVMe (CONFIG_NVME_TARGET_AUTH). "
                "Remove the option, or use another kernel.",
                final=True,
            )

    def assign(self, tree: configfs.Tree, host: Path) -> None:
        """Let the kernel know the key of a host.

        :param host: its directory in configfs
        :raises BackendError: it has none, or as of :meth:`read`
        """
        if not self.are_required:
            return
        key = self.read().get(host.name)
        if not key:
            raise self._error(
                f"has no key for {host.name}. Make one with 'nvme gen-dhchap-key', and add it "
                "there and to /etc/nvme/config.json of the host"
            )
        tree.write(host / _ATTRIBUTE, key)

    def parts(self, tree: configfs.Tree, hosts: Path, names: Iterable[str]) -> set[str]:
        """Return the parts of an export for the hosts whose keys the kernel knows.

        :param hosts: the directory of all hosts in configfs
        """
        keys = self.read()
        known = {
            name for name in names if keys.get(name, "") == tree.read(hosts / name / _ATTRIBUTE)
        }
        return set(self.expected_parts(known & keys.keys()))

    def expected_parts(self, names: Iterable[str]) -> list[str]:
        """Return what :meth:`parts` should return."""
        return [f"key of {name}" for name in names] if self.are_required else []

    def _error(self, reason: str) -> exception.BackendError:
        return exception.BackendError(f"lvm_host_keys: {self.path} {reason}.", final=True)
