# SPDX-License-Identifier: Apache-2.0
"""The connector for os-brick and the kernel's initiators.

It is the only importer of os-brick.  That import is slow and is therefore done late.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import functools
import importlib.util
from pathlib import Path
from typing import Any, Final

from oslo_concurrency import lockutils, processutils
from oslo_config import cfg
from oslo_utils import importutils, strutils

from attachd import exception
from attachd.agent.connectors import ceph_header, interfaces, local, remote_file
from attachd.agent.connectors.base import (
    IDENTITY,
    ConnectionInfo,
    ConnectorProperties,
    Device,
    HostConnector,
    Options,
)
from attachd.agent.mount.device_writers import DeviceWriters
from attachd.linux import block_device, commands

_RBD = Path("/dev/rbd")
_SYS = Path("/sys/class")
_LOADED_MODULES = Path("/sys/module")
INSTALL: Final = "pip install '.[host]' in the sources of attachd"
"""The command that installs os-brick."""

_NVME: Final = "nvmeof"
_KERNEL_SCSI: Final = "SCSI in the kernel (choose connector type user-space, or another kernel)"
_REQUIREMENTS: Final[Mapping[str, tuple[dict[str, str], str, str]]] = {
    "iscsi": ({"iscsiadm": "open-iscsi"}, "scsi_host", _KERNEL_SCSI),
    "iser": ({"iscsiadm": "open-iscsi"}, "scsi_host", _KERNEL_SCSI),
    "fibre_channel": ({"sg_scan": "sg3-utils"}, "fc_host", "a Fibre Channel adapter"),
    _NVME: ({"nvme": "nvme-cli"}, "", ""),
    "nfs": ({"mount.nfs": "nfs-common"}, "", ""),
    "rbd": ({"rbd": "ceph-common"}, "", ""),
}
"""By protocol: commands with their packages, a directory of /sys/class, and what it stands for."""

_SCSI: Final = frozenset({"iscsi", "iser", "fibre_channel"})
_MODULES: Final = {_NVME: "nvme_fabrics", "nfs": "nfs", "rbd": "rbd"}
"""By protocol: the kernel's module, which the command loads if it is not there."""

_DEFAULT_LOCK_NAME: Final = "attachd-shared-targets"
"""The lock for volumes whose service is not known."""

_SECRET_KEYS = ("password", "secret", "keyring", "_key", "token")
# Shorter values are no secrets, and their replacement would garble any text.
_MIN_SECRET_LENGTH = 4


class BrickConnector(HostConnector):
    """os-brick as root, in this process, with locks of its own.

    :param state_path: the host's
    :param initiator: the iSCSI name of the host; None: that of the machine.  The kernel logs in
        with the machine's name, so both must be the same
    """

    TYPE = "kernel"

    def __init__(self, state_path: Path, initiator: str | None = None) -> None:
        self._state_path = state_path
        self._locks = state_path.absolute() / "locks"
        self._initiator = initiator
        self._writers = DeviceWriters(state_path)

    @staticmethod
    def has_library() -> bool:
        """Return whether os-brick is installed, without importing it."""
        return importlib.util.find_spec("os_brick") is not None

    def load(self) -> None:
        """Import os-brick."""
        self._load_brick()

    def missing_requirements(self, protocol: str | None = None) -> Sequence[str]:
        """Check os-brick, commands and kernel support; "local" needs nothing."""
        protocol = protocol and protocol.lower()
        if protocol == local.PROTOCOL:
            return []
        missing = commands.list_missing({"blockdev": "util-linux", "sync": "coreutils"})
        if not self.has_library():
            missing.append(f"os-brick ({INSTALL})")
        tools, directory, what = _REQUIREMENTS.get(protocol or "", ({}, "", ""))
        missing += commands.list_missing(tools)
        if directory and not (_SYS / directory).is_dir():
            missing.append(what)
        if (module := _MODULES.get(protocol or "")) and not _has_module(module):
            missing.append(f"the module {module} of the kernel (another kernel)")
        return missing

    def get_connector_properties(self, host: str, options: Options) -> ConnectorProperties:
        """Return the properties that os-brick finds."""
        address = interfaces.get_address(options.nic)
        brick = self._load_brick()
        with _host_errors({}, "The connector properties of this host could not be found"):
            properties: ConnectorProperties = brick.get_connector_properties(
                None, address, options.multipath, options.enforce_multipath, host=host
            )
        initiator = properties.get("initiator", self._initiator)
        if self._initiator is not None and initiator != self._initiator:
            raise exception.HostError(
                reason=f"The kernel of this host logs in as {initiator}, not as "
                f"{self._initiator}. Change /etc/iscsi/initiatorname.iscsi and restart iscsid, or "
                "choose connector type user-space."
            )
        return properties

    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        """Connect by os-brick; a read-only device is set read-only in the kernel as well."""
        if local.is_local(info):
            return local.connect(info)
        connector = self._connector(info, options)
        is_file = remote_file.is_remote_file(info)
        paths = [] if is_file else self.find_device_paths(info)
        if any(self._are_writers_stopped(info, path) for path in paths):
            self.disconnect(info, options, None, force=True)
        if _is_rbd(info) and not ceph_header.missing_requirements():
            # If the kernel refuses an image, the command rbd opens it to say why.
            ceph_header.check(info)
        with self._shared_target_guard(info), _host_errors(info, "Connect failed"):
            answer = connector.connect_volume(
                remote_file.with_mount_options(info) if is_file else dict(info)
            )
        if is_file:
            return remote_file.attach(info, self._state_path, self._writers)
        path = _text(answer["path"])
        device_info = {key: _text(value) for key, value in answer.items()}
        device = Device(path, {**device_info, IDENTITY: block_device.identity(path)})
        self._writers.resume(path)  # It is left if other volumes use the same controller.
        if info.get("access_mode") == "ro":
            try:
                # Not every disk reports to the kernel that it refuses writes.
                block_device.make_read_only(device.path)
            except exception.HostError:
                self.disconnect(info, options, device)
                raise
        return device

    def disconnect(
        self, info: ConnectionInfo, options: Options, device: Device | None, *, force: bool = False
    ) -> None:
        """Flush and remove the device by os-brick, which ends sessions that are not needed."""
        if local.is_local(info):
            local.disconnect(info, force=force)
            return
        if remote_file.is_remote_file(info):
            remote_file.detach(info, self._state_path, force=force)
            return
        connector = self._connector(info, options)
        device_info = {**device.info} if device else {}
        device_info.pop(IDENTITY, None)
        with self._shared_target_guard(info), _host_errors(info, "Disconnect failed"):
            connector.disconnect_volume(dict(info), device_info, force=force, ignore_errors=force)

    def extend(self, info: ConnectionInfo, options: Options, device: Device) -> int:
        """Let the kernel read the size of the volume again."""
        if local.is_local(info):
            return local.extend(info)
        if remote_file.is_remote_file(info):
            return remote_file.extend(info)
        connector = self._connector(info, options)
        with _host_errors(info, "Extend failed"):
            size = connector.extend_volume(dict(info))
        return int(size) if size else block_device.size(device.path)

    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        """Compare the device with the paths that os-brick knows for the volume."""
        if local.is_local(info):
            return local.is_present(info, device)
        if remote_file.is_remote_file(info):
            is_stopped = self._writers.are_stopped(device.path)
            return remote_file.is_present(info, device) and not is_stopped
        if not block_device.exists(device.path):
            return False
        volume_paths = {Path(path).resolve() for path in self._volume_paths(info)}
        components = block_device.list_components(device.path)
        is_of_volume = bool(volume_paths & {Path(device.path).resolve(), *components})
        return is_of_volume and not self._are_writers_stopped(info, device.path)

    def stop_writers(self, info: ConnectionInfo, options: Options, device: Device | None) -> None:
        """Take SCSI disks offline, unmap rbd devices by force, and refuse writes to others.

        The first two need no answer of the backend, and flush nothing.
        """
        if local.is_local(info):
            return
        if _is_scsi(info):
            self._stop_scsi_writers(info, options, device)
        elif _is_rbd(info):
            for path in self._find_volume_paths(info):
                commands.run("rbd", "device", "unmap", "--options", "force", path)
        elif device is not None and _has_identity(device):
            self._writers.stop(device.path, lambda: _has_identity(device))
        else:
            for path in self.find_device_paths(info):
                self._writers.stop(path, functools.partial(self._is_device_of, info, path))

    def _is_device_of(self, info: ConnectionInfo, path: str) -> bool:
        return path in self.find_device_paths(info)

    def _are_writers_stopped(self, info: ConnectionInfo, path: str) -> bool:
        """Return whether stop_writers() has stopped those of a device that exists."""
        if _is_scsi(info):
            disks = [path, *map(str, block_device.list_components(path))]
            return any(map(block_device.is_offline, disks))
        return self._writers.are_stopped(path)

    def _stop_scsi_writers(
        self, info: ConnectionInfo, options: Options, device: Device | None
    ) -> None:
        # First without os-brick: its import and its commands take seconds, also of this process.
        if device is not None and _has_identity(device):
            disks = list(map(str, block_device.list_components(device.path)))
            if all(map(block_device.set_offline, disks or [device.path])):
                return
        disks = self._find_volume_paths(info)
        if disks and device is not None:
            disks += [f"{path}" for path in block_device.list_components(device.path)]
        if disks and all(map(block_device.set_offline, disks)):
            return
        self.disconnect(info, options, device, force=True)

    def find_device_paths(self, info: ConnectionInfo) -> Sequence[str]:
        """Return the paths that os-brick knows: it removes a device also while it is in use."""
        if local.is_local(info):
            return []
        if remote_file.is_remote_file(info):
            return remote_file.find_device_paths(info)
        paths = self._find_volume_paths(info)
        return list(dict.fromkeys(map(block_device.parent_disk, paths)))

    def _find_volume_paths(self, info: ConnectionInfo) -> list[str]:
        return [path for path in self._volume_paths(info) if block_device.exists(path)]

    def _volume_paths(self, info: ConnectionInfo) -> list[str]:
        if _is_rbd(info):
            # os-brick does not know them; this is the name that Ceph's udev rule gives.
            return [f"{_RBD / str(info.get('name'))}"]
        with _host_errors(info, "The paths of the volume could not be found"):
            if _is_nvme(info):
                self._load_brick()
                return _find_nvme_devices(info)
            paths = self._connector(info, Options()).get_volume_paths(dict(info))
        return [_text(path) for path in paths]

    def _connector(self, info: ConnectionInfo, options: Options) -> Any:
        protocol = str(info.get("driver_volume_type"))
        brick = self._load_brick()
        is_reader_of_rbd = _is_rbd(info) and info.get("access_mode") == "ro"
        with _host_errors(info, f"os-brick cannot be used for {protocol}"):
            return brick.InitiatorConnector.factory(
                protocol,
                None,
                use_multipath=options.multipath,
                do_local_attach=True,
                conn={"mount_point_base": remote_file.mount_point_base(info)},
                **({"execute": _execute_read_only} if is_reader_of_rbd else {}),
            )

    @contextlib.contextmanager
    def _shared_target_guard(self, info: ConnectionInfo) -> Iterator[None]:
        """Hold a lock of this host where volumes share a session, as Compute does.

        ``shared_targets`` of the volume decides: True: the backend has such sessions, which
        matters if the initiator scans by itself; None: always; False: never.  ``service_uuid``
        names the lock.
        """
        self._load_brick()
        guard = importutils.import_module("os_brick.initiator.utils").guard_connection
        shared = info.get("shared_targets", False)
        service = info.get("service_uuid") or _DEFAULT_LOCK_NAME
        with guard({"shared_targets": shared, "service_uuid": service}):
            yield

    def _load_brick(self) -> Any:
        """Return os_brick.initiator.connector, set up."""
        try:
            self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It registers options that setup() reads, so it has to come first.
            lockutils.set_defaults(str(self._locks))
            os_brick = importutils.import_module("os_brick")
            os_brick.setup(cfg.CONF)
            privileged = importutils.import_module("os_brick.privileged")
            # This process is root and needs no privileged helper.
            privileged.default.set_client_mode(False)
            privileged.brick_privsep_hide_output.set_client_mode(False)
            return importutils.import_module("os_brick.initiator.connector")
        except (ImportError, OSError) as error:
            raise exception.HostError(
                reason=f"os-brick cannot be used: {error}. Install it ({INSTALL}), or choose "
                "connector type user-space."
            ) from error


def _is_scsi(info: ConnectionInfo) -> bool:
    return str(info.get("driver_volume_type")).lower() in _SCSI


def _execute_read_only(*command: str, **options: Any) -> Any:
    """Run a command of os-brick; it maps an image read-only.

    The kernel locks the object map of an image that it maps for writing, which a reader may not.
    """
    execute = importutils.import_module("os_brick.privileged.rootwrap").execute
    line = [*command, "--read-only"] if command[:2] == ("rbd", "map") else command
    return execute(*line, **options)


def _is_rbd(info: ConnectionInfo) -> bool:
    return str(info.get("driver_volume_type")).lower() == ceph_header.PROTOCOL


def _is_nvme(info: ConnectionInfo) -> bool:
    return str(info.get("driver_volume_type")).lower() == _NVME


def _find_nvme_devices(info: ConnectionInfo) -> list[str]:
    """Return the devices of a volume, by its subsystem and the UUID of its namespace.

    The method get_volume_paths() of os-brick's connector for NVMe takes no connection_info, but an
    instance that only other methods make of it.
    """
    nvmeof = importutils.import_module("os_brick.initiator.connectors.nvmeof")
    # A copy: what is in an older format is changed.
    properties = nvmeof.NVMeOFConnProps(dict(info), find_controllers=True)
    devices: list[str] = properties.get_devices()
    return devices


def _has_identity(device: Device) -> bool:
    """Return whether the disk that was connected is still at its path."""
    known = device.info.get(IDENTITY)
    return bool(known) and block_device.identity(device.path) == known


def _has_module(name: str) -> bool:
    """Return whether a module of the kernel is loaded or can be."""
    if (_LOADED_MODULES / name).is_dir():
        return True
    line = ("modprobe", "--dry-run", "--quiet", name)
    return not commands.list_missing({line[0]: "kmod"}) and not (
        commands.execute(line, commands.DEFAULT_TIMEOUT).exit_code
    )


@contextlib.contextmanager
def _host_errors(info: ConnectionInfo, what: str) -> Iterator[None]:
    """Convert os-brick's errors to HostError, without secrets and with a remedy."""
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
        reason = redact(_error_message(error), info)
        raise exception.HostError(
            reason=f"{what}: {reason}. Check that the backend can be reached and that iscsid or "
            "multipathd run where they are needed (journalctl), then repeat the command."
        ) from None


def _error_message(error: BaseException) -> str:
    if isinstance(error, processutils.ProcessExecutionError):
        message = error.stderr or error.stdout or error.description or f"exit {error.exit_code}"
        tool = str(error.cmd or "").split(" ")[0] or "a command"
        return f"{tool}: {' '.join(str(message).split())}"
    lines = str(error).strip().splitlines()
    # Of several errors, with their traces, the last line is the last message.
    return f"{type(error).__name__} {lines[-1].strip() if lines else ''}".strip(" .")


def redact(text: str, info: Mapping[str, Any]) -> str:
    """Return a text with asterisks in place of secrets.

    :param info: the connection whose secrets are replaced
    """
    for secret in sorted(_secrets(info), key=len, reverse=True):
        text = text.replace(secret, "***")
    return strutils.mask_password(text)


def _secrets(info: Mapping[str, Any]) -> Iterator[str]:
    for key, value in info.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and any(part in key.lower() for part in _SECRET_KEYS):
            # A keyring is a text with a secret among other words.
            words = {value, *value.split()}
            yield from (word for word in words if len(word) >= _MIN_SECRET_LENGTH)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
