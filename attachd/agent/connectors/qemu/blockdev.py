# SPDX-License-Identifier: Apache-2.0
"""What QEMU calls the volume of a connection; for qemu/connector.py.

Source: QEMU's QAPI schema, BlockdevOptionsIscsi and BlockdevOptionsRbd; os-brick's connectors
for the keys of a connection.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import re
from typing import Any

from attachd import exception
from attachd.agent.connectors.base import ConnectionInfo

PROTOCOLS: Mapping[str, str] = {"iscsi": "iscsi", "rbd": "rbd"}
"""QEMU's drivers, by driver_volume_type."""

SECRET = "secret"  # noqa: S105 (the name of QEMU's object)
"""How a description names its secret."""

_KEY = re.compile(r"^\s*key\s*=\s*(\S+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Image:
    """One path to a volume.

    :ivar blockdev: as QEMU's blockdev-add takes it, without a node name and without secrets
    :ivar secret: what its object :data:`SECRET` holds; None: it needs none
    """

    blockdev: dict[str, Any]
    secret: str | None = dataclasses.field(default=None, repr=False)

    @property
    def where(self) -> str:
        """Name it, for people."""
        parts = ("portal", "target", "pool", "image")
        return " ".join(str(self.blockdev[each]) for each in parts if each in self.blockdev)

    @property
    def writable(self) -> bool:
        """Whether it may be written to."""
        return not self.blockdev["read-only"]


def describe(info: ConnectionInfo, initiator: str) -> list[Image]:
    """Describe each path to a volume, in the order in which they are to be tried.

    :param initiator: the iSCSI name to log in with
    :raises HostError: the connection is none that QEMU knows
    """
    protocol = str(info.get("driver_volume_type")).lower()
    if protocol not in PROTOCOLS:
        raise exception.HostError(
            reason=f"Connector type user-space cannot reach {protocol} volumes. Choose connector "
            "type kernel."
        )
    try:
        return _iscsi(info, initiator) if protocol == "iscsi" else [_rbd(info)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Not the error itself: it may quote a value.
        lacking = f": {error}" if isinstance(error, KeyError) else ""
        raise exception.HostError(
            reason=f"The connection lacks what an {protocol} connection has{lacking}. "
            "Detach the volume, and attach it again."
        ) from None


def name(info: ConnectionInfo) -> str:
    """Name what is connected, the same whatever else is known of it."""
    targets = (info.get(each) for each in ("target_iqn", "target_lun", "target_portal", "name"))
    return " ".join(str(each) for each in targets)


def _iscsi(info: ConnectionInfo, initiator: str) -> list[Image]:
    common = {"driver": "iscsi", "transport": "tcp", "initiator-name": initiator, **_use(info)}
    secret = None
    if info.get("auth_method"):
        common |= {"user": info["auth_username"], "password-secret": SECRET}
        secret = str(info["auth_password"])
    return [
        Image(common | {"portal": portal, "target": iqn, "lun": int(lun)}, secret)
        for portal, iqn, lun in _paths(info)
    ]


def _paths(info: ConnectionInfo) -> Sequence[tuple[str, str, int]]:
    """List portal, target and unit of each path."""
    if info.get("target_portals"):
        several = (info["target_portals"], info["target_iqns"], info["target_luns"])
        return list(zip(*several, strict=True))
    return [(info["target_portal"], info["target_iqn"], info["target_lun"])]


def _rbd(info: ConnectionInfo) -> Image:
    pool, _, image = str(info["name"]).partition("/")
    blockdev = {"driver": "rbd", "pool": pool, "image": image, **_use(info)}
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
    return Image(blockdev, secret)


def _use(info: ConnectionInfo) -> dict[str, Any]:
    discard = "unmap" if info.get("discard") else "ignore"
    return {"read-only": info.get("access_mode") == "ro", "discard": discard}
