# SPDX-License-Identifier: Apache-2.0
"""Block devices by os-brick and the kernel's initiators; host.py chooses it.

The only importer of os-brick, which takes its time and is therefore imported late.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import importlib.util
from pathlib import Path
from typing import Any, Final

from oslo_concurrency import lockutils, processutils
from oslo_config import cfg
from oslo_utils import importutils

from attachd import exception
from attachd.agent import block_device, commands, secrecy
from attachd.agent.connectors import interfaces, local
from attachd.agent.connectors.base import (
    IDENTITY,
    ConnectionInfo,
    ConnectorProperties,
    Device,
    HostConnector,
    Options,
)

_RBD = Path("/dev/rbd")
_SYS = Path("/sys/class")
_SCSI: Final = "SCSI in the kernel (choose connector type user-space, or another kernel)"
_NEEDS: Final[Mapping[str, tuple[dict[str, str], str, str]]] = {
    "iscsi": ({"iscsiadm": "open-iscsi"}, "scsi_host", _SCSI),
    "iser": ({"iscsiadm": "open-iscsi"}, "scsi_host", _SCSI),
    "fibre_channel": ({"sg_scan": "sg3-utils"}, "fc_host", "a Fibre Channel adapter"),
    "nvmeof": ({"nvme": "nvme-cli"}, "", ""),
    "rbd": ({"rbd": "ceph-common"}, "", ""),
}
"""By protocol: commands with their packages, a folder of /sys/class, and what that stands for."""

_SOMEBODY: Final = "attachd-shared-targets"
"""Who takes turns with whom where the service of a volume is not told."""


class BrickConnector(HostConnector):
    """os-brick as root, in this process, with locks of its own.

    :param folder: the host's
    :param name: the iSCSI name of the host; None: that of the machine.  The kernel logs in with
        the machine's, so that it has to be the same
    """

    TYPE = "kernel"

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._locks = folder.absolute() / "locks"
        self._name = name

    @staticmethod
    def has_library() -> bool:
        """Tell whether os-brick is installed; it is not imported for that."""
        return importlib.util.find_spec("os_brick") is not None

    def missing_requirements(self, protocol: str | None = None) -> Sequence[str]:
        """Look for os-brick, commands and the kernel's part; local needs nothing."""
        protocol = protocol and protocol.lower()
        if protocol == local.PROTOCOL:
            return []
        lacking = commands.missing({"blockdev": "util-linux", "sync": "coreutils"})
        if not self.has_library():
            lacking.append("os-brick (pip install 'attachd[host]')")
        tools, folder, what = _NEEDS.get(protocol or "", ({}, "", ""))
        lacking += commands.missing(tools)
        if folder and not (_SYS / folder).is_dir():
            lacking.append(what)
        return lacking

    def get_connector_properties(self, host: str, options: Options) -> ConnectorProperties:
        """Ask os-brick."""
        address = interfaces.address(options.nic)
        brick = self._brick()
        with _told({}, "This host cannot tell what it is to a backend"):
            told: ConnectorProperties = brick.get_connector_properties(
                None, address, options.multipath, options.enforce_multipath, host=host
            )
        if self._name is not None and told.get("initiator", self._name) != self._name:
            raise exception.HostError(
                reason=f"The kernel of this host logs in as {told['initiator']}, not as "
                f"{self._name}. Change /etc/iscsi/initiatorname.iscsi and restart iscsid, or "
                "choose connector type user-space."
            )
        return told

    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        """Let os-brick find the device; a read-only one is told to the kernel as well."""
        if local.is_local(info):
            return local.connect(info)
        connector = self._connector(info, options)
        with self._turn(info), _told(info, "The volume could not be connected"):
            found = connector.connect_volume(dict(info))
        path = _text(found["path"])
        known = {each: _text(found[each]) for each in found}
        device = Device(path, {**known, IDENTITY: block_device.identity(path)})
        if info.get("access_mode") == "ro":
            try:
                # Disks do not always tell the kernel that they refuse writes.
                block_device.make_read_only(device.path)
            except exception.HostError:
                self.disconnect(info, options, device)
                raise
        return device

    def disconnect(
        self, info: ConnectionInfo, options: Options, device: Device | None, *, force: bool = False
    ) -> None:
        """Let os-brick flush and remove the device; it ends sessions that nothing else needs."""
        if local.is_local(info):
            local.disconnect(info, force=force)
            return
        connector = self._connector(info, options)
        known = {**device.info} if device else {}
        known.pop(IDENTITY, None)
        with self._turn(info), _told(info, "The volume could not be disconnected"):
            connector.disconnect_volume(dict(info), known, force=force, ignore_errors=force)

    def extend(self, info: ConnectionInfo, options: Options, device: Device) -> int:
        """Let os-brick have the kernel look again."""
        if local.is_local(info):
            return local.extend(info)
        connector = self._connector(info, options)
        with _told(info, "The device could not be extended"):
            size = connector.extend_volume(dict(info))
        return int(size) if size else block_device.size(device.path)

    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        """Look for the device, and compare it with the paths that os-brick knows."""
        if local.is_local(info):
            return local.is_present(info, device)
        if not block_device.exists(device.path):
            return False
        found = {Path(each).resolve() for each in self._paths(info)}
        return bool(found & {Path(device.path).resolve(), *block_device.parts(device.path)})

    def find_device_paths(self, info: ConnectionInfo) -> Sequence[str]:
        """Ask os-brick, which removes a device whether it is used or not."""
        if local.is_local(info):
            return []
        found = [each for each in self._paths(info) if block_device.exists(each)]
        return list(dict.fromkeys(map(block_device.whole, found)))

    def _paths(self, info: ConnectionInfo) -> list[str]:
        if str(info.get("driver_volume_type")).lower() == "rbd":
            # os-brick does not know; udev's rule of Ceph names them like this.
            return [f"{_RBD / str(info.get('name'))}"]
        with _told(info, "Nobody can tell whether the device is there"):
            found = self._connector(info, Options()).get_volume_paths(dict(info))
        return [_text(each) for each in found]

    def _connector(self, info: ConnectionInfo, options: Options) -> Any:
        protocol = str(info.get("driver_volume_type"))
        brick = self._brick()
        with _told(info, f"os-brick cannot be used for {protocol}"):
            return brick.InitiatorConnector.factory(
                protocol, None, use_multipath=options.multipath, do_local_attach=True
            )

    @contextlib.contextmanager
    def _turn(self, info: ConnectionInfo) -> Iterator[None]:
        """Take turns with others of this host where volumes share a session, as Compute does.

        ``shared_targets`` and ``service_uuid`` of the volume tell: True where the backend has
        such sessions, which matters if the initiator scans by itself; None always.
        """
        self._brick()
        guard = importutils.import_module("os_brick.initiator.utils").guard_connection
        shared = info.get("shared_targets", False)
        service = info.get("service_uuid") or _SOMEBODY
        with guard({"shared_targets": shared, "service_uuid": service}):
            yield

    def _brick(self) -> Any:
        """Return os_brick.initiator.connector, set up."""
        try:
            self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It registers options which setup() reads, and has to come before.
            lockutils.set_defaults(str(self._locks))
            os_brick = importutils.import_module("os_brick")
            os_brick.setup(cfg.CONF)
            privileged = importutils.import_module("os_brick.privileged")
            # We are root, and need no helper that is.
            privileged.default.set_client_mode(False)
            privileged.brick_privsep_hide_output.set_client_mode(False)
            return importutils.import_module("os_brick.initiator.connector")
        except (ImportError, OSError) as error:
            raise exception.HostError(
                reason=f"os-brick cannot be used: {error}. Install it with "
                "'pip install attachd[host]', or choose connector type user-space."
            ) from error


@contextlib.contextmanager
def _told(info: ConnectionInfo, what: str) -> Iterator[None]:
    """Tell what os-brick complains of, without secrets, and what to do about it."""
    errors = importutils.import_module("os_brick.exception")
    try:
        yield
    except (
        errors.BrickException,
        processutils.ProcessExecutionError,
        lockutils.AcquireLockFailedException,
        OSError,
        LookupError,
        TypeError,
        ValueError,
        NotImplementedError,
    ) as error:
        # Not chained: the error may hold command lines with secrets.
        why = secrecy.hidden(_complaint(error), info)
        raise exception.HostError(
            reason=f"{what}: {why}. Look whether the backend can be reached and iscsid or "
            "multipathd run where they are needed (journalctl), then repeat the command."
        ) from None


def _complaint(error: BaseException) -> str:
    if isinstance(error, processutils.ProcessExecutionError):
        said = error.stderr or error.stdout or error.description or f"exit {error.exit_code}"
        tool = str(error.cmd or "").split(" ")[0] or "a command"
        return f"{tool}: {' '.join(str(said).split())}"
    lines = str(error).strip().splitlines()
    # Of several errors, with their traces, the last line is the last message.
    return f"{type(error).__name__} {lines[-1].strip() if lines else ''}".strip(" .")


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
