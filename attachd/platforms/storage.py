# SPDX-License-Identifier: Apache-2.0
"""The calls of attachd's API that drivers for container platforms make."""

from collections.abc import Iterator, Mapping
import dataclasses
import datetime
import http
from typing import Any, Final, Self
from urllib import parse

from attachd import multiattach
from attachd.platforms.api import Api
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError
from attachd.platforms.resources import Resources

GIB: Final = 2**30
CSI_KEY: Final = "csi.id"
"""Metadata of each volume and each snapshot that attachd-csi has created."""
DRIVER_KEY: Final = "csi.driver"
"""Metadata of these snapshots: the name of the driver, which each cluster has its own of."""
PUBLISHED_KEY: Final = "csi.published"
"""Metadata of each other volume that it has published."""
DOCKER_KEY: Final = "docker.name"
"""Metadata of each volume that Docker has: its name there."""
_TYPE_KEYS: Final = ("volume_type", "volume_type_id")


@dataclasses.dataclass(frozen=True)
class StoredVolume:
    """A volume, as the API shows it.

    :ivar name: "": none
    :ivar size_gib: in GiB (2**30 bytes)
    :ivar type_names: name and id of its volume type; empty: it has none
    :ivar backend: "host@backend#pool"; None: the user may not see it
    """

    id: str
    name: str
    status: str
    size_gib: int
    zone: str | None
    type_names: frozenset[str]
    is_multiattach: bool
    metadata: Mapping[str, str]
    backend: str | None

    @property
    def csi_key(self) -> str | None:
        """The key of its metadata by which attachd-csi has it; None: it does not have it.

        Docker does not have it as well: its plugin detaches what no container uses.
        """
        return next((key for key in (CSI_KEY, PUBLISHED_KEY) if key in self.metadata), None)

    @classmethod
    def from_body(cls, shown: Mapping[str, Any]) -> Self:
        """Build it from the API's answer."""
        return cls(
            id=shown["id"],
            name=shown["name"] or "",
            status=shown["status"],
            size_gib=int(shown["size"]),
            zone=shown["availability_zone"],
            type_names=frozenset(filter(None, (shown[key] for key in _TYPE_KEYS))),
            is_multiattach=bool(shown["multiattach"]),
            metadata=shown["metadata"],
            backend=shown.get("os-vol-host-attr:host"),
        )


@dataclasses.dataclass(frozen=True)
class StoredAttachment:
    """An attachment, as the API shows it.

    :ivar node: the host whose agent attaches it; None: another client does, such as Compute
    :ivar host: where it is; None: it is only reserved
    :ivar created_at: when it was reserved, in UTC
    :ivar condition: None unless it is attached
    """

    id: str
    volume_id: str
    status: str
    mode: str
    node: str | None
    host: str | None
    created_at: datetime.datetime
    condition: Mapping[str, Any] | None

    @classmethod
    def from_body(cls, shown: Mapping[str, Any]) -> Self:
        """Build it from the API's answer."""
        return cls(
            id=shown["id"],
            volume_id=shown["volume_id"],
            status=shown["status"],
            mode="ro" if shown["attach_mode"] == "ro" else "rw",
            node=shown["agent"],
            host=shown["agent"] or shown["attached_host"],
            created_at=_parse_time(shown["created_at"]),
            condition=shown["condition"],
        )

    def is_older_reservation(self, seconds: float) -> bool:
        """Return whether it has only been reserved for more than some seconds."""
        age = datetime.datetime.now(datetime.UTC) - self.created_at
        return self.status == "reserved" and age.total_seconds() > seconds


@dataclasses.dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot, as the API shows it.

    :ivar volume_id: of the volume that it was taken of
    :ivar size_gib: of this volume then, in GiB (2**30 bytes)
    :ivar created_at: when it was requested, in UTC
    """

    id: str
    status: str
    volume_id: str
    size_gib: int
    created_at: datetime.datetime
    metadata: Mapping[str, str]

    @classmethod
    def from_body(cls, shown: Mapping[str, Any]) -> Self:
        """Build it from the API's answer."""
        return cls(
            id=shown["id"],
            status=shown["status"],
            volume_id=shown["volume_id"],
            size_gib=int(shown["size"]),
            created_at=_parse_time(shown["created_at"]),
            metadata=shown["metadata"],
        )


class Storage:
    """Volumes, snapshots, attachments and backends of a cloud.

    Its methods raise StorageError.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.volumes = Resources(api, "volume", StoredVolume.from_body)
        self.snapshots = Resources(api, "snapshot", StoredSnapshot.from_body)

    def check(self) -> None:
        """Check that the API answers this user; raises as Api.check()."""
        self._api.check()

    def find_named(self, name: str) -> list[StoredVolume]:
        """Return the volumes that have a name, or this id."""
        named = [volume for volume in self.volumes.filter(name=name) if volume.name == name]
        by_id = self.volumes.get(name)
        return [*named, by_id] if by_id is not None and by_id not in named else named

    def extend_volume(self, volume_id: str, size_gib: int) -> None:
        """Have a volume extended."""
        self._api.ask(
            "POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": size_gib}}
        )

    def attachments(
        self, volume_id: str | None = None, node: str | None = None
    ) -> Iterator[StoredAttachment]:
        """Yield the attachments of a volume, or of all volumes, oldest first.

        :param node: only those that the agent of this host attaches
        """
        asked = {"sort": "created_at:asc,id:asc", "volume_id": volume_id, "agent": node}
        while True:
            query = parse.urlencode({name: value for name, value in asked.items() if value})
            answer = self._api.ask("GET", f"/attachments/detail?{query}")
            page = answer["attachments"]
            yield from map(StoredAttachment.from_body, page)
            if not answer.get("attachments_links"):
                return
            asked["marker"] = page[-1]["id"]

    def attach(self, volume_id: str, node: str, mode: str) -> StoredAttachment:
        """Have the agent of a node attach a volume, and wait until it has.

        :param mode: "rw" or "ro"
        """
        requested = {"volume_uuid": volume_id, "host": node, "mode": mode}
        answer = self._api.ask("POST", "/attachments", {"attachment": requested})
        return StoredAttachment.from_body(answer["attachment"])

    def detach(self, attachment_id: str) -> None:
        """Delete an attachment, and wait until its node has no access any more."""
        self._api.ask("DELETE", f"/attachments/{attachment_id}")

    def fence(self, node: str, reason: str) -> list[Mapping[str, Any]]:
        """Fence a node until it starts again; return its attachments, each with the result.

        For administrators.
        """
        path = f"/hosts/{parse.quote(node, safe='')}/fence"
        answer = self._api.ask("POST", path, {"fence": {"reason": reason, "lift": "auto"}})
        return list(answer["fence"]["attachments"])

    def fencing(self, volume: StoredVolume) -> str:
        """Return how sure the fencing of the backend of a volume is: "proved", "asserted", "none".

        For administrators; "" if the backend is down or unknown.
        """
        backend = (volume.backend or "").partition("#")[0]
        for pool in self.pools(None):
            if pool["name"].partition("#")[0] == backend:
                return str(pool["capabilities"].get("fencing", ""))
        return ""

    def is_type_shared(self, name: str | None) -> bool:
        """Return whether volumes of a type can be attached to several hosts.

        :param name: or id, of the type; None: the default
        :raises CallError: INVALID_ARGUMENT: there is none
        """
        for shown in _list_types(self._api, name):
            if name in {None, shown["id"], shown["name"]}:
                return multiattach.parse(shown.get("extra_specs", {})).multiattach
        if name is None:
            return False
        raise CallError(
            ErrorCode.INVALID_ARGUMENT, f"The parameter type names no volume type: {name}"
        )

    def pools(self, type_name: str | None) -> list[Mapping[str, Any]]:
        """Return the pools of the backends that are up; for administrators.

        :param type_name: only those that can serve this volume type
        """
        asked = {"detail": "true", "volume_type": type_name}
        query = parse.urlencode({name: value for name, value in asked.items() if value})
        return list(self._api.ask("GET", f"/scheduler-stats/get_pools?{query}")["pools"])

    def zones(self) -> dict[str, str]:
        """Return the zones of backends by ``host@backend``; for administrators."""
        services = self._api.ask("GET", "/os-services")["services"]
        return {service["host"]: service["zone"] for service in services}


def _list_types(api: Api, name: str | None) -> list[Any]:
    """Return the volume types among which one of a name is, or the default."""
    if name is not None:
        return list(api.ask("GET", "/types")["volume_types"])
    try:
        return [api.ask("GET", "/types/default")["volume_type"]]
    except StorageError as error:
        if error.status == http.HTTPStatus.NOT_FOUND:
            return []
        raise


def _parse_time(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
