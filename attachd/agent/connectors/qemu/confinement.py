# SPDX-License-Identifier: Apache-2.0
"""What a storage daemon may use of this host: used by storage_daemon.py.

A backend, a host with a key of Ceph and the content of a volume can make QEMU read files and open
connections, and QEMU's parsers may have faults: so it has no files, and few ports.
"""

from collections.abc import Mapping
import ipaddress
from pathlib import Path
from typing import Any, Final

from attachd.agent.connectors.qemu.blockdev import VolumePath
from attachd.linux import sandbox

_ISCSI_PORT: Final = 3260
_CEPH_PORTS: Final = frozenset({3300, 6789, *range(6800, 7569)})
"""Of monitors and OSDs.

Source: Ceph, network configuration reference; ms_bind_port_min and ms_bind_port_max.
"""


def sandbox_for(directory: Path, path: VolumePath, *files: Path) -> sandbox.Sandbox:
    """Return the sandbox of the daemon of one path.

    :param files: that it reads, and no other user of the host
    """
    servers = _servers(path.blockdev)
    return sandbox.Sandbox(
        directory=f"{directory}",
        copies=[*map(str, files), *_ceph_files(path.blockdev)],
        writable=[f"{directory / 'pid'}"],
        placeholders=[f"/dev/fd/{sandbox.FIRST_FD}"],
        ports=_ports(path.blockdev, servers),
        datagrams=not servers or not all(map(_is_address, servers)),
        # Servers with the option "secure", which is the default, want a port below 1024.
        capability=sandbox.NET_BIND_SERVICE if path.blockdev["driver"] == "nfs" else None,
    )


def _servers(blockdev: Mapping[str, Any]) -> Mapping[str, int | None]:
    """Return the hosts that a daemon connects to, with their ports if they are known."""
    match blockdev:
        case {"portal": portal}:
            host, _, port = portal.rpartition(":") if _has_port(portal) else (portal, "", "")
            return {host.strip("[]"): int(port or _ISCSI_PORT)}
        case {"server": {"host": host}}:
            return {host: None}
        case {"server": servers}:
            return {item["host"]: int(item["port"]) for item in servers}
    return {}


def _has_port(portal: str) -> bool:
    return ":" in portal.rpartition("]")[2]


def _ports(blockdev: Mapping[str, Any], servers: Mapping[str, int | None]) -> list[int] | None:
    """Return the TCP ports that are enough; None: they are not known.

    NFS 3 has a port of each server's choice for its mount protocol.
    """
    ports = {port for port in servers.values() if port is not None}
    if blockdev["driver"] == "iscsi":
        return sorted(ports)
    if blockdev["driver"] == "rbd" and ports and ports <= _CEPH_PORTS:
        return sorted(_CEPH_PORTS)
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ceph_files(blockdev: Mapping[str, Any]) -> list[str]:
    """List the files of this host with which librados finds and enters the cluster."""
    if blockdev["driver"] != "rbd":
        return []
    conf = blockdev.get("conf", "/etc/ceph/ceph.conf")
    keyring = f"/etc/ceph/{Path(conf).stem}.client.{blockdev.get('user')}.keyring"
    return [conf, *([] if "key-secret" in blockdev else [keyring])]
