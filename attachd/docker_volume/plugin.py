# SPDX-License-Identifier: Apache-2.0
"""The calls of Docker's protocol for volume plugins, version 1.

Source: https://docs.docker.com/engine/extend/plugins_volume/
"""

from collections.abc import Callable, Mapping
import logging
import re
import time
from typing import Any, Final, NamedTuple

from attachd import exception
from attachd.docker_volume.mounting import Mounter
from attachd.docker_volume.named_volumes import NamedVolumes, name_of
from attachd.docker_volume.new_volume import Options
from attachd.docker_volume.server import Caller
from attachd.linux import mountinfo
from attachd.platforms import calls
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.calls import Call, CallError, ErrorCode
from attachd.platforms.storage import StoredVolume

LOG = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}")
"""Names of volumes, as Docker permits them; they are names of directories as well."""
_MAX_USE: Final = 256
"""Characters of the id of a use; Docker's have 64."""
_LONG: Final = 110.0
_SHORT: Final = 55.0
"""Seconds of a call: Docker waits 120 s for some calls, and 60 s for others."""
_UNKNOWN: Final = "other"
"""The label of unknown calls in metrics, so that callers cannot create labels."""
_LONG_CALLS: Final = frozenset({"VolumeDriver.Create", "VolumeDriver.Mount"})


class Request(NamedTuple):
    """A call.

    :ivar fields: of the request, as Docker has sent them
    """

    fields: Mapping[str, Any]
    caller: Caller

    @property
    def name(self) -> str:
        """The name of the volume; raises CallError."""
        name = self.fields.get("Name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _invalid("Name has to be 1 to 255 letters, digits, or _ . - after the first.")
        return name

    @property
    def use(self) -> str:
        """The id of the use; raises CallError."""
        use = self.fields.get("ID", "")
        if not isinstance(use, str) or len(use) > _MAX_USE:
            raise _invalid(f"ID has to be a string of at most {_MAX_USE} characters.")
        return use

    @property
    def options(self) -> Mapping[str, str]:
        """The options of a new volume; raises CallError."""
        options = self.fields.get("Opts") or {}
        if not isinstance(options, dict) or not all(
            isinstance(value, str) for value in options.values()
        ):
            raise _invalid("Opts has to be an object of strings.")
        return options


class Plugin:
    """Serves the calls; used by any number of threads."""

    def __init__(self, named: NamedVolumes, mounter: Mounter, measured: CallMetrics) -> None:
        self._named = named
        self._mounter = mounter
        self._measured = measured
        self._calls: Mapping[str, Callable[[Request], dict[str, Any]]] = {
            "Plugin.Activate": self._activate,
            "VolumeDriver.Capabilities": self._get_capabilities,
            "VolumeDriver.Create": self._create,
            "VolumeDriver.Get": self._get,
            "VolumeDriver.List": self._list,
            "VolumeDriver.Mount": self._mount,
            "VolumeDriver.Path": self._get_path,
            "VolumeDriver.Remove": self._remove,
            "VolumeDriver.Unmount": self._unmount,
        }

    def serve(self, call_name: str, fields: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Return the response of a call, or its error as ``Err``.

        :param call_name: such as "VolumeDriver.Mount"
        :param fields: of the request
        """
        call = Call.start(None, _SHORT)
        if call_name in _LONG_CALLS:
            call = Call.start(None, _LONG, caller.is_waiting)
        started = time.monotonic()
        with calls.serving(call):
            label = call_name if call_name in self._calls else _UNKNOWN
            try:
                with self._measured.measure(label):
                    answer = self._find(call_name)(Request(fields, caller))
            except (CallError, exception.AttachdError) as error:
                # Docker asks for each volume before it creates it.
                is_usual = isinstance(error, CallError) and error.code is ErrorCode.NOT_FOUND
                LOG.log(logging.DEBUG if is_usual else logging.WARNING, "%s: %s", call_name, error)
                return {"Err": f"{error} ({call.request_id})"}
            except Exception:
                LOG.exception("%s failed", call_name)
                return {"Err": f"The log of the plugin has the reason. ({call.request_id})"}
            LOG.info(
                "%s %s: done after %.2f s",
                call_name,
                fields.get("Name", ""),
                time.monotonic() - started,
            )
        return {"Err": "", **answer}

    def _find(self, call_name: str) -> Callable[[Request], dict[str, Any]]:
        if call_name not in self._calls:
            raise _invalid(f"There is no call {call_name[:64]!r}.")
        return self._calls[call_name]

    def _activate(self, _request: Request) -> dict[str, Any]:
        return {"Implements": ["VolumeDriver"]}

    def _get_capabilities(self, _request: Request) -> dict[str, Any]:
        return {"Capabilities": {"Scope": "global"}}

    def _create(self, request: Request) -> dict[str, Any]:
        self._named.create(request.name, request.options)
        return {}

    def _remove(self, request: Request) -> dict[str, Any]:
        self._mounter.remove(request.name)
        return {}

    def _mount(self, request: Request) -> dict[str, Any]:
        path = self._mounter.mount(request.name, request.use, request.caller.process)
        return {"Mountpoint": path}

    def _unmount(self, request: Request) -> dict[str, Any]:
        self._mounter.unmount(request.name, request.use)
        return {}

    def _get_path(self, request: Request) -> dict[str, Any]:
        return {"Mountpoint": self._find_mountpoint(request.name)}

    def _get(self, request: Request) -> dict[str, Any]:
        volume = self._named.get(request.name)
        shown = self._show(request.name)
        return {"Volume": {**shown, "Status": _describe(volume)}}

    def _list(self, _request: Request) -> dict[str, Any]:
        names = [name_of(volume) for volume in self._named.list_all()]
        return {"Volumes": [self._show(name) for name in names]}

    def _show(self, name: str) -> dict[str, Any]:
        return {"Name": name, "Mountpoint": self._find_mountpoint(name)}

    def _find_mountpoint(self, name: str) -> str:
        """Return the directory of a volume that is mounted here, or ""."""
        path = self._mounter.path(name)
        return path if mountinfo.find_at(path) is not None else ""


def _describe(volume: StoredVolume) -> dict[str, Any]:
    """Return what ``docker volume inspect`` shows of a volume."""
    options = Options.read(volume)
    return {
        "id": volume.id,
        "status": volume.status,
        "size_gib": volume.size_gib,
        "mode": options.mode,
        "options": dict(options.given),
    }


def _invalid(message: str) -> CallError:
    return CallError(ErrorCode.INVALID_ARGUMENT, message)
