# SPDX-License-Identifier: Apache-2.0
"""Endpoints that make volumes of existing objects of a backend, list such objects, and end the
management of volumes.

``/manageable_volumes`` is the resource since 3.8, ``/os-volume-manage`` the same in all versions.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import json
import math
from typing import Any, Final, Literal, TypedDict, TypeVar

from oslo_utils import units, uuidutils

from attachd import exception
from attachd.api import idempotency, paging, scheduler, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, action, endpoint
from attachd.api.types import lookup
from attachd.api.volumes import backend_calls, create_params, load, policy, schema, view
from attachd.api.volumes.actions import PATH as ACTION_PATH
from attachd.api.volumes.handlers import IDEMPOTENCY_SPEC
from attachd.context import RequestContext
from attachd.db.cluster import services
from attachd.db.row_types import VolumeTypeRow
from attachd.db.volumes import volume_store
from attachd.rpc import manager_api
from attachd.rpc.manager_api import Manageable, ManageableSnapshot
from attachd.states import VolumeState

Body = dict[str, Any]
Query = Mapping[str, str]

COLLECTION: Final = "/manageable_volumes"
FORMER_COLLECTION: Final = "/os-volume-manage"
NAME: Final = "source-name"
"""The key of a reference that is written as a text."""
BackendObject = Manageable | ManageableSnapshot
ObjectT = TypeVar("ObjectT", Manageable, ManageableSnapshot)
_SORT_KEYS: Final = {"reference": "reference", "size": "size"}


class ManageableSummary(TypedDict):
    """An object of a backend.

    :ivar reference: its name at the backend, as drivers define it
    :ivar size: in GiB, rounded up
    """

    reference: dict[str, str]
    size: int
    safe_to_manage: bool


class ManageableDetail(ManageableSummary):
    """An object with details.

    :ivar cinder_id: of the volume that it is
    """

    reason_not_safe: str | None
    cinder_id: str | None
    extra_info: None


PARAMETERS: Final = {
    **paging.PAGE_PARAMETERS,
    "marker": validation.query_text("The last reference of the previous page, as JSON."),
    "host": validation.query_text("The backend, as host@backend or host@backend#pool."),
    "cluster": validation.query_text("Since 3.17: a cluster. This service has none."),
}
_INDEX_DOC: Final = EndpointDoc(
    {"manageable-volumes": list[ManageableSummary]}, PARAMETERS, (429, 503, 504)
)
_DETAIL_DOC: Final = EndpointDoc(
    {"manageable-volumes": list[ManageableDetail]}, PARAMETERS, (429, 503, 504)
)


@endpoint(
    "GET",
    COLLECTION,
    since=mv.MANAGE_EXISTING_LIST,
    policy=policy.LIST_MANAGEABLE,
    doc=_INDEX_DOC,
)
@endpoint("GET", FORMER_COLLECTION, policy=policy.LIST_MANAGEABLE, doc=_INDEX_DOC)
def index(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """List the volumes and the objects of a backend."""
    return {"manageable-volumes": [summary(item) for item in _page(ctx, query, version)]}


@endpoint(
    "GET",
    f"{COLLECTION}/detail",
    since=mv.MANAGE_EXISTING_LIST,
    policy=policy.LIST_MANAGEABLE,
    doc=_DETAIL_DOC,
)
@endpoint("GET", f"{FORMER_COLLECTION}/detail", policy=policy.LIST_MANAGEABLE, doc=_DETAIL_DOC)
def detail(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """List them with the reasons why some cannot be managed."""
    return {"manageable-volumes": [_detail(item) for item in _page(ctx, query, version)]}


def summary(item: BackendObject) -> ManageableSummary:
    """Return what lists show of an object without details."""
    return {
        "reference": item["reference"],
        "size": size_gib(item),
        "safe_to_manage": not item["refusal"],
    }


def _detail(item: Manageable) -> ManageableDetail:
    return {
        **summary(item),
        "reason_not_safe": item["refusal"] or None,
        "cinder_id": item["volume_id"] or None,
        "extra_info": None,
    }


def size_gib(item: BackendObject) -> int:
    """Return the size of an object, rounded up."""
    return math.ceil(item["size_bytes"] / units.Gi)


def _page(ctx: RequestContext, query: Query, version: mv.Version) -> list[Manageable]:
    """Return one page of what the backend lists."""

    def list_objects(host: str) -> list[Manageable]:
        found = manager_api.list_manageable(ctx, backend_of(host))
        return [item for item in found if _is_in_pool(item, host)]

    return read_page(query, version, list_objects)


def read_page(
    query: Query, version: mv.Version, list_objects: Callable[[str], list[ObjectT]]
) -> list[ObjectT]:
    """Return one page of what a backend lists, sorted; none of a driver that lists nothing.

    The parameters are checked before the backend is asked.

    :param list_objects: asks the backend that the query names
    :raises BadRequest: a parameter of the query is wrong
    """
    host = requested_host(query, version >= mv.MANAGE_EXISTING_CLUSTER)
    page = paging.read(query, _SORT_KEYS, "reference")
    check_service(host, "host" if query.get("host") else "cluster", exception.NotFound)
    try:
        found = list_objects(host).copy()
    except exception.AbilityMissing:
        return []
    for key, direction in reversed(page.sort):
        order = _order_of_reference if key == "reference" else size_gib
        found.sort(key=order, reverse=direction == "desc")
    start = _position_after(found, page.marker) + page.offset
    return found[start : start + page.limit]


def _order_of_reference(item: BackendObject) -> str:
    return min(map(str, item["reference"].values()), default="")


def _position_after(found: Sequence[BackendObject], marker: str | None) -> int:
    """Return the position after the reference that a marker is.

    :raises InvalidInput: it is no JSON, or no such reference
    """
    if marker is None:
        return 0
    try:
        reference = json.loads(marker)
    except (ValueError, RecursionError):
        reason = "It must be a reference, as JSON."
    else:
        for position, item in enumerate(found, 1):
            if item["reference"] == reference:
                return position
        reason = "The backend has no such object."
    raise exception.InvalidInput(
        field="marker", value=validation.abbreviate(marker), reason=reason
    )


@endpoint(
    "POST",
    COLLECTION,
    since=mv.MANAGE_EXISTING_LIST,
    policy=policy.MANAGE,
    body=schema.MANAGE,
    status=202,
    idempotent=IDEMPOTENCY_SPEC,
    doc=EndpointDoc({"volume": view.BaseDetail}, faults=(409, 429, 503, 504)),
)
@endpoint(
    "POST",
    FORMER_COLLECTION,
    policy=policy.MANAGE,
    body=schema.MANAGE,
    status=202,
    idempotent=IDEMPOTENCY_SPEC,
    doc=EndpointDoc({"volume": view.BaseDetail}, faults=(409, 429, 503, 504)),
)
def manage(
    ctx: RequestContext,
    body: Body,
    version: mv.Version,
    links: view.Links,
    idempotency_claim: idempotency.IdempotencyClaim | None = None,
) -> Body:
    """Store a volume, and have its backend make it of an object."""
    values = functools.partial(_new_volume, ctx, body["volume"], version)
    if idempotency_claim is None:
        volume = backend_calls.create(ctx, values())
    else:
        volume = backend_calls.create_once(ctx, idempotency_claim, values)
    # As in the Block Storage API, the answer has no fields of later versions.
    viewer = dataclasses.replace(view.Viewer.from_context(ctx, version, links), version=mv.BASE)
    return {"volume": view.created(volume, viewer)}


def _new_volume(ctx: RequestContext, requested: Body, version: mv.Version) -> dict[str, Any]:
    """Return the values of a volume that is to be made of an object.

    :raises BadRequest: the backend refuses the object, or does not fit the volume type
    :raises Unavailable: the backend does not exist, or its manager does not work
    """
    host = requested_host(requested, version >= mv.VOLUME_MIGRATE_CLUSTER)
    reference = requested["ref"]
    if isinstance(reference, str):
        reference = {NAME: reference}
    _check_not_managed(reference.get(NAME, ""))
    volume_type = _requested_type(ctx, requested.get("volume_type"))
    sharing = create_params.authorize_sharing(ctx, volume_type)
    check_service(host, "host" if requested.get("host") else "cluster", exception.BadRequest)
    specs = volume_type["extra_specs"] if volume_type else {}
    zone = requested.get("availability_zone") or None
    request_spec = scheduler.RequestSpec(0, specs, zone)
    place = scheduler.select_for_object(host, request_spec)
    found = manager_api.get_manageable(ctx, backend_of(host), reference)
    pool = place.host
    if found["pool"]:
        pool = f"{backend_of(host)}#{found['pool']}"
        place = scheduler.select_for_object(pool, request_spec)
    refusal = found["refusal"]
    if not refusal and host not in {backend_of(host), pool}:
        refusal = f"It is at {pool}, in another pool."
    if refusal:
        raise exception.InvalidVolume(
            reason=f"The object {reference} of {backend_of(host)} cannot be managed: {refusal}"
        )
    size = size_gib(found)
    create_params.check_size(volume_type, size)
    return {
        **create_params.name_and_description(requested),
        "state": VolumeState.MANAGING,
        "provider": reference,  # until it is managed
        "project_id": ctx.project_id,
        "user_id": ctx.user_id,
        "size_gib": size,
        "multiattach": sharing,
        "bootable": validation.parse_bool("bootable", requested.get("bootable") or False),
        "volume_type_id": volume_type["id"] if volume_type else None,
        "volume_type_name": volume_type["name"] if volume_type else None,
        "type_specs": specs,
        "metadata": requested.get("metadata") or {},
        "host": pool,
        "availability_zone": place.availability_zone,
    }


def _requested_type(ctx: RequestContext, name: str | None) -> VolumeTypeRow | None:
    """Return the type of an id or a name, or the default.

    :raises InvalidVolumeType: the caller sees no such type
    """
    if not name:
        return lookup.default(ctx)
    try:
        return lookup.get_by_id_or_name(ctx, name)
    except exception.VolumeTypeNotFound as error:
        raise exception.InvalidVolumeType(
            reason=f"Cannot find requested '{name}' volume type."
        ) from error


def _check_not_managed(name: str) -> None:
    """Check that the name of an object is not that of a volume.

    :raises InvalidVolume: it is
    """
    volume_id = name.removeprefix("volume-")
    if uuidutils.is_uuid_like(volume_id) and volume_store.exists(volume_id):
        raise exception.InvalidVolume(
            reason="Unable to manage existing volume. The volume is already managed"
        )


def requested_host(requested: Mapping[str, Any], may_be_cluster: bool) -> str:  # noqa: FBT001  by version
    """Return the backend, or the cluster, that a request names.

    :raises InvalidInput: it names none, or both
    """
    host, cluster = requested.get("host"), requested.get("cluster") if may_be_cluster else None
    if bool(host) == bool(cluster):
        problem = (
            "One and only one of cluster and host must be set."
            if may_be_cluster
            else "Host field is missing."
        )
        raise exception.BadRequest(reason=f"Invalid input received: {problem}")
    return str(host or cluster)


def check_service(
    host: str,
    kind: Literal["host", "cluster"],
    missing: type[exception.NotFound | exception.BadRequest],
) -> None:
    """Check that managers serve a backend; there are no clusters.

    :param missing: the error for a backend that never reported
    :raises Unavailable: none does, or the backend is disabled
    """
    found = services.page({"binary": services.BINARY, "host": backend_of(host)})
    if kind == "cluster" or not found:
        text = f"{kind.capitalize()} '{host}' not found."
        raise missing(text) if missing is exception.NotFound else missing(reason=text)
    if found[0]["disabled"] or not scheduler.is_up(found[0]):
        raise exception.Unavailable(
            reason=f"Backend {backend_of(host)} is disabled, or no manager of it works. Try later."
        )


def backend_of(host: str) -> str:
    """Return ``host@backend`` of ``host@backend#pool``."""
    return host.partition("#")[0]


def _is_in_pool(item: Manageable, host: str) -> bool:
    """Return whether an object is in the pool of ``host@backend#pool``, if that names one."""
    pool = host.partition("#")[2]
    return not pool or item["pool"] in {"", pool}


@action(ACTION_PATH, "os-unmanage", policy=policy.UNMANAGE, doc=EndpointDoc(faults=(503,)))
def unmanage(ctx: RequestContext, volume_id: str) -> None:
    """Remove a volume and keep its data at the backend; the value under the key is ignored."""
    volume = load.get(ctx, volume_id, policy.UNMANAGE)
    try:
        backend_calls.unmanage(ctx, volume)
    except exception.InvalidTransition as error:
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} must be available, or in an error, to be unmanaged, "
            f"but its status is {volume.status}."
        ) from error
