# SPDX-License-Identifier: Apache-2.0
"""Output formats of attachment-show for programs that connect by themselves.

No output has a secret: :data:`SECRET` marks its place, and :data:`INITIATOR` that of the iSCSI
name of the host, which an attachment does not show.

Source: QEMU's manual, "Disk images"; libiscsi and libnfs, README; libvirt, "Domain XML format",
"Hard drives, floppy disks, CDROMs".
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
import json
from typing import Any, ClassVar, Final, TextIO
from urllib import parse
from xml.etree import ElementTree as ET

from cliff.formatters import base

from attachd import exception
from attachd.agent.connectors.qemu import blockdev
from attachd.cli import formatting

SECRET: Final = "SECRET"  # noqa: S105  marks the place of one
INITIATOR: Final = "INITIATOR"
"""The marked places."""

GROUP: Final = "attachd.formatter.show"
"""The entry points of the formats, and of those that cliff gives to all commands."""

NVME: Final = "nvmeof"
"""driver_volume_type of NVMe/TCP, which QEMU and libvirt do not reach by themselves."""

_ISCSI_PORT: Final = "3260"

Info = dict[str, Any]
Blockdev = Mapping[str, Any]


class _ConnectionFormatter(base.SingleFormatter):
    """A format of the connection.

    :cvar PROTOCOLS: driver_volume_type of the connections that it can show
    """

    PROTOCOLS: ClassVar[frozenset[str]] = frozenset(blockdev.PROTOCOLS)

    def add_argument_group(self, parser: ArgumentParser) -> None:
        """Add no options."""

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: Namespace,
    ) -> None:
        """Print the connection; raises HostError if there is none for this format."""
        values = map(formatting.plain, data)
        info = _without_secrets(dict(zip(column_names, values, strict=True)))
        if info["driver_volume_type"] not in self.PROTOCOLS:
            raise exception.HostError(
                reason=f"Attachment {info['attachment_id']}: a {info['driver_volume_type']} "
                f"connection cannot be shown as {parsed_args.formatter}, but one of "
                f"{', '.join(sorted(self.PROTOCOLS))} can. Use another format."
            )
        stdout.write(f"{self.text(info)}\n")

    def text(self, info: Info) -> str:
        """Return what is printed of a connection."""
        raise NotImplementedError


class Url(_ConnectionFormatter):
    """A URL for each path, as QEMU's tools, libiscsi and libnfs take it."""

    PROTOCOLS = _ConnectionFormatter.PROTOCOLS | {NVME}

    def text(self, info: Info) -> str:
        """Return a line for each path."""
        if info["driver_volume_type"] == NVME:
            nqn = parse.quote(info["target_nqn"], safe=":")
            return "\n".join(
                f"nvme+tcp://{_authority(address, port)}/{nqn}"
                for address, port, _transport in info["portals"]
            )
        return "\n".join(_url(path.blockdev) for path in blockdev.list_paths(info, INITIATOR))


class Qemu(_ConnectionFormatter):
    """The argument of QEMU's ``-blockdev``, for the first path."""

    def text(self, info: Info) -> str:
        """Return it as JSON."""
        return json.dumps({"node-name": "volume", **_first_path(info)})


class Libvirt(_ConnectionFormatter):
    """The element ``disk`` of a domain of libvirt, for the first path."""

    def text(self, info: Info) -> str:
        """Return it as XML."""
        disk = _disk(_first_path(info), info)
        ET.indent(disk)
        return ET.tostring(disk, encoding="unicode")


def _without_secrets(info: Info) -> Info:
    """Return a connection with marks instead of its secrets, also where the caller saw none.

    :raises HostError: the attachment has no connection
    """
    if not info.get("driver_volume_type"):
        raise exception.HostError(
            reason=f"Attachment {info.get('attachment_id')} is {info.get('status')} and has no "
            "connection. Connect it first: attachd attachment-update."
        )
    marked = {"auth_password": SECRET} if info.get("auth_method") else {}
    if info.get("auth_enabled"):
        marked["keyring"] = f"key = {SECRET}"
    return {**info, **marked}


def _first_path(info: Info) -> Blockdev:
    return blockdev.list_paths(info, INITIATOR)[0].blockdev


def _authority(host: str, port: object) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url(path: Blockdev) -> str:
    if path["driver"] == "iscsi":
        user = f"{parse.quote(path['user'])}%{SECRET}@" if "user" in path else ""
        target = parse.quote(path["target"], safe=":")
        return f"iscsi://{user}{path['portal']}/{target}/{path['lun']}"
    if path["driver"] == "nfs":
        query = f"uid={path['user']}&gid={path['group']}"
        return f"nfs://{path['server']['host']}{parse.quote(path['path'])}?{query}"
    options = {"id": path.get("user"), "conf": path.get("conf")}
    if "key-secret" in path:
        options["key"] = SECRET
    if "server" in path:
        options["mon_host"] = ";".join(_authority(**item) for item in path["server"])
    listed = (f":{name}={_escape(text)}" for name, text in options.items() if text)
    return f"rbd:{_escape(path['pool'])}/{_escape(path['image'])}{''.join(listed)}"


def _escape(text: str) -> str:
    r"""Escape what ends an option of ``rbd:``, which librados reads without the ``\``."""
    for character in "\\:@=/;":
        text = text.replace(character, f"\\{character}")
    return text


def _disk(path: Blockdev, info: Info) -> ET.Element:
    disk = ET.Element("disk", type="network", device="disk")
    discard = {"discard": path["discard"]}
    ET.SubElement(disk, "driver", name="qemu", type="raw", cache="none", **discard)
    names = {
        "iscsi": lambda: f"{path['target']}/{path['lun']}",
        "nfs": lambda: path["path"],
        "rbd": lambda: f"{path['pool']}/{path['image']}",
    }
    protocol = path["driver"]
    source = ET.SubElement(disk, "source", protocol=protocol, name=names[protocol]())
    for host in _hosts(path):
        ET.SubElement(source, "host", host)
    if protocol == "iscsi":
        initiator = ET.SubElement(source, "initiator")
        ET.SubElement(initiator, "iqn", name=path["initiator-name"])
    if protocol == "nfs":
        ET.SubElement(source, "identity", user=f"+{path['user']}", group=f"+{path['group']}")
    elif "user" in path:
        kind = "ceph" if protocol == "rbd" else protocol
        auth = ET.SubElement(source, "auth", username=path["user"])
        known = info.get("secret_uuid")
        place = {"uuid": known} if known else {"usage": SECRET}
        ET.SubElement(auth, "secret", type=kind, **place)
    ET.SubElement(disk, "target", dev="vdb", bus="virtio")
    if path["read-only"]:
        ET.SubElement(disk, "readonly")
    return disk


def _hosts(path: Blockdev) -> list[dict[str, str]]:
    if path["driver"] == "nfs":
        return [{"name": path["server"]["host"]}]
    if path["driver"] == "rbd":
        return [{"name": item["host"], "port": item["port"]} for item in path.get("server", ())]
    host, _, port = path["portal"].rpartition(":")
    return [{"name": host.strip("[]"), "port": port or _ISCSI_PORT}]
