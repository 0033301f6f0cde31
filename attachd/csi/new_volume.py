# SPDX-License-Identifier: Apache-2.0
"""A new volume, as CreateVolume describes it: sizes, parameters, zones, and its identity."""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any, Final, Self

from attachd.csi import access, csi_pb2, names
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.creation import Source
from attachd.platforms.resources import Stored
from attachd.platforms.storage import CSI_KEY, DRIVER_KEY, GIB, StoredVolume

TYPE: Final = "type"
"""Parameter: name or id of the volume type; without it the default type."""
FS_TYPE: Final = "fsType"
"""Parameter: file system where the capability names none, as Nomad's."""
PARAMETERS: Final = (TYPE, FS_TYPE)
_OF_KUBERNETES: Final = "csi.storage.k8s.io/"
"""Prefix of parameters that external-provisioner adds, such as the name of the claim."""

ZONE: Final = "topology.csi.attachd.org/zone"
"""Topology key: the availability zone of attachd."""
FS_TYPE_CONTEXT: Final = "attachd.fs_type"
"""Key of volume_context: the parameter fsType."""
COPY_CONTEXT: Final = "attachd.copy"
"""Key of volume_context: the volume has a file system that may be smaller, that of its source."""

_SOURCE_KEYS: Final = {"volume": "csi.source", "snapshot": "csi.snapshot"}
"""Metadata: the id of the source, by its kind."""
_SOURCE_FIELDS: Final = {"volume": "source_volid", "snapshot": "snapshot_id"}
"""Fields of the request to the API with the same."""
_PARAMETER_KEY: Final = "csi.parameter."

_MAX_GIB: Final = 10**9 - 1


@dataclasses.dataclass(frozen=True)
class SizeRange:
    """Requested sizes in bytes; 0: no limit."""

    required: int = 0
    limit: int = 0

    @classmethod
    def from_message(cls, message: csi_pb2.CapacityRange) -> Self:
        """Read it from a request.

        :raises CallError: INVALID_ARGUMENT or OUT_OF_RANGE
        """
        required, limit = message.required_bytes, message.limit_bytes
        if required < 0 or limit < 0:
            raise _out_of_range(f"Sizes are not negative: {required}, {limit}.")
        if 0 < limit < required:
            raise CallError(
                ErrorCode.INVALID_ARGUMENT,
                f"limit_bytes, {limit}, is less than required_bytes, {required}.",
            )
        return cls(required, limit)

    def choose_gib(self, least_gib: int = 1) -> int:
        """Return the smallest size in GiB that is not less than another one.

        :raises CallError: OUT_OF_RANGE: no whole number of GiB is in the range
        """
        size = max(least_gib, -(-self.required // GIB))
        if self.limit and size * GIB > self.limit:
            raise _out_of_range(
                f"Volumes have whole GiB: {size * GIB} bytes are more than limit_bytes, "
                f"{self.limit}."
            )
        if size > _MAX_GIB:
            raise _out_of_range(f"required_bytes, {self.required}, is more than {_MAX_GIB} GiB.")
        return size

    def has(self, size_gib: int) -> bool:
        """Return whether a size is in the range."""
        size = size_gib * GIB
        return self.required <= size and (not self.limit or size <= self.limit)


@dataclasses.dataclass(frozen=True)
class NewVolume:
    """A volume that is to be created.

    :ivar id: digest of the names of driver and volume: only ASCII, so that it can be searched for
    :ivar driver: its name
    :ivar source: the volume or the snapshot that it gets its data of; None: it is empty
    :ivar zones: those that are possible, the preferred first; empty: any
    :ivar wants_topology: whether the response names the zone
    """

    id: str
    driver: str
    name: str
    sizes: SizeRange
    capabilities: tuple[csi_pb2.VolumeCapability, ...]
    parameters: Mapping[str, str]
    source: Source | None
    zones: tuple[str, ...]
    wants_topology: bool

    @classmethod
    def from_request(cls, driver: str, request: csi_pb2.CreateVolumeRequest) -> Self:
        """Read it from a request.

        :param driver: its name
        :raises CallError: INVALID_ARGUMENT or OUT_OF_RANGE
        """
        wants_topology = request.HasField("accessibility_requirements")
        if request.mutable_parameters:
            raise CallError(ErrorCode.INVALID_ARGUMENT, "mutable_parameters are not supported.")
        return cls(
            id=names.digest(driver, request.name),
            driver=driver,
            name=request.name,
            sizes=SizeRange.from_message(request.capacity_range),
            capabilities=tuple(request.volume_capabilities),
            parameters=read_parameters(request.parameters),
            source=_read_source(request.volume_content_source),
            zones=_read_zones(request.accessibility_requirements),
            wants_topology=wants_topology,
        )

    created_key = names.CREATED_KEY

    @property
    def identity(self) -> dict[str, str]:
        """The metadata by which the volume is found."""
        return {CSI_KEY: self.id}

    @property
    def type_name(self) -> str | None:
        """Name or id of the volume type; None: the default."""
        return self.parameters.get(TYPE)

    def is_source(self, source: Stored) -> bool:
        """Return whether a volume or a snapshot can be its source, and not that of others.

        A snapshot of another cluster is not: that one may delete it at any time.
        """
        return source.metadata.get(DRIVER_KEY, self.driver) == self.driver

    def check_type(self, *, is_shared: bool) -> None:
        """Check that a type permits the capabilities; raises CallError.

        :param is_shared: whether its volumes can be attached to several hosts
        """
        access.check(self.capabilities, is_shared=is_shared)

    def choose_gib(self, least_gib: int) -> int:
        """Return the size in GiB, which is not less than another one; raises CallError."""
        return self.sizes.choose_gib(least_gib)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata by which the volume is found and compared."""
        source = {_SOURCE_KEYS[self.source.kind]: self.source.id} if self.source else {}
        chosen = {f"{_PARAMETER_KEY}{key}": value for key, value in self.parameters.items()}
        return {**self.identity, names.NAME_KEY: self.name, **source, **chosen}

    def values(self, size_gib: int, zone: str | None) -> dict[str, Any]:
        """Return the body of the request that creates it."""
        optional = {"volume_type": self.type_name, "availability_zone": zone}
        if self.source is not None:
            optional[_SOURCE_FIELDS[self.source.kind]] = self.source.id
        return {
            "name": names.printable(self.name),
            "size": size_gib,
            "metadata": self.metadata,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def find_difference(self, volume: StoredVolume) -> str:
        """Return how an existing volume of the same name is another one; "" if it is this one."""
        known = {
            key: value
            for key, value in volume.metadata.items()
            if key in _SOURCE_KEYS.values() or key.startswith(_PARAMETER_KEY)
        }
        expected = {key: value for key, value in self.metadata.items() if key in known}
        of_request = set(self.metadata) - {CSI_KEY, names.NAME_KEY}
        if known != expected or of_request != known.keys():
            return f"it was created with {json.dumps(known, sort_keys=True)}"
        if not self.sizes.has(volume.size_gib):
            return f"its size is {volume.size_gib * GIB} bytes"
        if self.zones and volume.zone not in self.zones:
            return f"its zone is {volume.zone}"
        return access.find_reason(self.capabilities, is_shared=volume.is_multiattach)

    def key(self, values: Mapping[str, Any], number: int) -> str:
        """Return the idempotency key of an attempt.

        :param values: of the request
        :param number: of attempts before it that created no volume, or one that is deleted
        """
        return names.make_key(self.id, values, number)


def context_of(volume: StoredVolume) -> dict[str, str]:
    """Return the volume_context, which nodes get."""
    fs_type = volume.metadata.get(f"{_PARAMETER_KEY}{FS_TYPE}")
    context = {FS_TYPE_CONTEXT: fs_type} if fs_type else {}
    return context if source_of(volume) is None else {**context, COPY_CONTEXT: "true"}


def source_of(volume: StoredVolume) -> csi_pb2.VolumeContentSource | None:
    """Return the volume or the snapshot that a volume was made of, or None."""
    for kind, key in _SOURCE_KEYS.items():
        if source_id := volume.metadata.get(key):
            return csi_pb2.VolumeContentSource(**{kind: {f"{kind}_id": source_id}})
    return None


def parameters_of(volume: StoredVolume) -> dict[str, str]:
    """Return the parameters that a volume was created with."""
    return {
        key.removeprefix(_PARAMETER_KEY): value
        for key, value in volume.metadata.items()
        if key.startswith(_PARAMETER_KEY)
    }


def read_parameters(
    given: Mapping[str, str], known: tuple[str, ...] = PARAMETERS
) -> dict[str, str]:
    """Return the parameters of a class without those of Kubernetes.

    :param known: those that the kind of class has
    :raises CallError: INVALID_ARGUMENT: one is unknown
    """
    own = {key: given[key] for key in given if not key.startswith(_OF_KUBERNETES)}
    if unknown := sorted(own.keys() - set(known)):
        raise CallError(
            ErrorCode.INVALID_ARGUMENT,
            f"There is no parameter {unknown[0]}. Parameters are: {', '.join(known) or 'none'}.",
        )
    return own


def _read_source(message: csi_pb2.VolumeContentSource) -> Source | None:
    kind = message.WhichOneof("type")
    if kind is None:
        return None
    field = f"{kind}_id"
    source_id = getattr(getattr(message, kind), field)
    if not source_id:
        raise CallError(
            ErrorCode.INVALID_ARGUMENT,
            f"The field volume_content_source.{kind}.{field} is required.",
        )
    return Source(kind, source_id)


def _read_zones(requirement: csi_pb2.TopologyRequirement) -> tuple[str, ...]:
    zones = [zone_of(place) for place in (*requirement.preferred, *requirement.requisite)]
    return tuple(dict.fromkeys(zone for zone in zones if zone))


def zone_of(place: csi_pb2.Topology) -> str | None:
    """Return the zone of a topology; None: it names none.

    :raises CallError: INVALID_ARGUMENT: it has another key
    """
    if unknown := sorted(set(place.segments) - {ZONE}):
        raise CallError(
            ErrorCode.INVALID_ARGUMENT,
            f"There is no topology key {unknown[0]}. The only one is {ZONE}.",
        )
    return place.segments.get(ZONE)


def _out_of_range(message: str) -> CallError:
    return CallError(ErrorCode.OUT_OF_RANGE, message)
