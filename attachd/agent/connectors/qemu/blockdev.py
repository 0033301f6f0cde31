# SPDX-License-Identifier: Apache-2.0
"""Connections in the terms of QEMU's block layer.

Source: QEMU's QAPI schema, BlockdevOptionsIscsi, BlockdevOptionsNfs and
BlockdevOptionsRbd; os-brick's connectors
for the keys of a connection.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import re
from typing import Any

from attachd import exception
from attachd.agent.connectors.base import ConnectionInfo

PROTOCOLS: Mapping[str, str] = {"iscsi": "iscsi", "nfs": "nfs", "rbd": "rbd"}
"""QEMU's drivers, by driver_volume_type."""

SECRET = "secret"  # noqa: S105 (the id of QEMU's object)
"""The id of the object with the secret of a path."""

_MS_MODES = frozenset({"crc", "secure"})
_KEY = re.compile(r"^\s*key\s*=\s*(\S+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class VolumePath:
    """One path to a volume.

    :ivar blockdev: as QEMU's blockdev-add takes it, without a node name and without secrets
    :ivar secret: the content of the object :data:`SECRET`; None: the path needs none
    :ivar ceph_conf: the content of a configuration file of Ceph; None: the path needs none
    """

    blockdev: dict[str, Any]
    secret: str | None = dataclasses.field(default=None, repr=False)
    ceph_conf: str | None = None

    @property
    def label(self) -> str:
        """The path in messages."""
        keys = ("portal", "target", "pool", "image", "path")
        return " ".join(str(self.blockdev[key]) for key in keys if key in self.blockdev)

    @property
    def writable(self) -> bool:
        """Whether it may be written to."""
        return not self.blockdev["read-only"]


def list_paths(info: ConnectionInfo, initiator: str) -> list[VolumePath]:
    """List the paths to a volume, in the order in which to try them.

    :param initiator: the iSCSI name to log in with
    :raises HostError: QEMU does not know the protocol, or the connection lacks a key
    """
    protocol = str(info.get("driver_volume_type")).lower()
    if protocol not in PROTOCOLS:
        raise exception.HostError(
            reason=f"Connector type user-space cannot reach {protocol} volumes. Choose connector "
            "type kernel."
        )
    try:
        if protocol == "iscsi":
            return _iscsi(info, initiator)
        return [_nfs(info) if protocol == "nfs" else _rbd(info)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Not the error itself: it may quote a value.
        key = f": {error}" if isinstance(error, KeyError) else ""
        raise exception.HostError(
            reason=f"The connection lacks what an {protocol} connection has{key}. "
            "Detach the volume, and attach it again."
        ) from None


def check_format(info: ConnectionInfo) -> None:
    """Refuse files whose bytes are not those of the volume; raises HostError."""
    if info.get("format", "raw") != "raw":
        raise exception.HostError(
            reason=f"The volume is a file in the format {info['format']}: only servers of Compute "
            "can attach it."
        )


def connection_name(info: ConnectionInfo) -> str:
    """Return a name of the volume of a connection that depends on its target alone."""
    keys = ("target_iqn", "target_lun", "target_portal", "name")
    return " ".join(str(info.get(key)) for key in keys)


def _iscsi(info: ConnectionInfo, initiator: str) -> list[VolumePath]:
    common = {"driver": "iscsi", "transport": "tcp", "initiator-name": initiator, **_access(info)}
    secret = None
    if info.get("auth_method"):
        common |= {"user": info["auth_username"], "password-secret": SECRET}
        secret = str(info["auth_password"])
    return [
        VolumePath(common | {"portal": portal, "target": iqn, "lun": int(lun)}, secret)
        for portal, iqn, lun in _iscsi_targets(info)
    ]


def _iscsi_targets(info: ConnectionInfo) -> Sequence[tuple[str, str, int]]:
    """List portal, target and unit of each path."""
    if info.get("target_portals"):
        columns = (info["target_portals"], info["target_iqns"], info["target_luns"])
        return list(zip(*columns, strict=True))
    return [(info["target_portal"], info["target_iqn"], info["target_lun"])]


def _nfs(info: ConnectionInfo) -> VolumePath:
    check_format(info)
    # libnfs speaks NFS 3, and asks the server's port mapper for its ports.
    host, directory = str(info["export"]).split(":/", 1)
    server = {"type": "inet", "host": host.strip("[]")}
    path = f"/{directory}/{info['name']}".replace("//", "/")
    # As the kernel's client, whose loop devices root opens; the daemon itself is not root.
    user = {"user": 0, "group": 0}
    return VolumePath({"driver": "nfs", "server": server, "path": path, **user, **_access(info)})


def _rbd(info: ConnectionInfo) -> VolumePath:
    pool, _, image = str(info["name"]).partition("/")
    blockdev = {"driver": "rbd", "pool": pool, "image": image, **_access(info)}
    if info.get("hosts"):
        addresses = zip(info["hosts"], info["ports"], strict=True)
        blockdev["server"] = [{"host": host, "port": str(port)} for host, port in addresses]
    if info.get("cluster_name") and not info.get("hosts"):
        blockdev["conf"] = f"/etc/ceph/{info['cluster_name']}.conf"
    secret = None
    if info.get("auth_enabled"):
        blockdev["user"] = info["auth_username"]
        if key := _KEY.search(info.get("keyring") or ""):
            blockdev["key-secret"] = SECRET
            secret = key.group(1)
    return VolumePath(blockdev, secret, _ceph_conf(info))


def ceph_settings(info: ConnectionInfo) -> dict[str, str]:
    """Return the options of a client of Ceph for a connection, with its key.

    :raises ValueError: the connection has a mode that Ceph does not know
    """
    settings = dict(_ms_modes(info))
    if info.get("hosts"):
        hosts = (f"[{host}]" if ":" in host else host for host in info["hosts"])
        addresses = zip(hosts, info["ports"], strict=True)
        settings["mon_host"] = ",".join(f"{host}:{port}" for host, port in addresses)
    if key := _KEY.search(info.get("keyring") or ""):
        settings["key"] = key.group(1)
    return settings


def _ceph_conf(info: ConnectionInfo) -> str | None:
    """Return the configuration of a client that is to use one mode of Ceph's second protocol."""
    modes = _ms_modes(info)
    lines = ["[global]", *(f"{option} = {mode}" for option, mode in modes.items()), ""]
    return "\n".join(lines) if modes else None


def _ms_modes(info: ConnectionInfo) -> dict[str, str]:
    mode = info.get("ms_mode")
    if mode and mode not in _MS_MODES:
        raise ValueError("ms_mode")
    return {"ms_client_mode": mode, "ms_mon_client_mode": mode} if mode else {}


def _access(info: ConnectionInfo) -> dict[str, Any]:
    discard = "unmap" if info.get("discard") else "ignore"
    return {"read-only": info.get("access_mode") == "ro", "discard": discard}
