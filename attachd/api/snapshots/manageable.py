# SPDX-License-Identifier: Apache-2.0
"""Endpoints that make snapshots of existing objects of a backend, list such objects, and end the
management of snapshots.

``/manageable_snapshots`` is the resource since 3.8, ``/os-snapshot-manage`` the same in all
versions.
"""

from collections.abc import Mapping
from typing import Any, Final

from attachd import exception
from attachd.api import idempotency, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, action, endpoint
from attachd.api.snapshots import backend_calls, load, policy, schema, view
from attachd.api.snapshots.actions import PATH as ACTION_PATH
from attachd.api.snapshots.handlers import IDEMPOTENCY_SPEC
from attachd.api.volumes import create_params, manageable
from attachd.api.volumes import load as volume_load
from attachd.context import RequestContext
from attachd.db.volumes import snapshot_rules, snapshot_store
from attachd.objects import Volume
from attachd.rpc import manager_api
from attachd.rpc.manager_api import ManageableSnapshot

Body = dict[str, Any]
Query = Mapping[str, str]

COLLECTION: Final = "/manageable_snapshots"
FORMER_COLLECTION: Final = "/os-snapshot-manage"


class ManageableSummary(manageable.ManageableSummary):
    """An object of a backend.

    :ivar source_reference: the volume of which it is; empty: not known
    """

    source_reference: dict[str, str]


class ManageableDetail(ManageableSummary):
    """An object with details.

    :ivar cinder_id: of the snapshot that it is
    """

    reason_not_safe: str | None
    cinder_id: str | None
    extra_info: None


_FAULTS: Final = (429, 503, 504)
_INDEX_DOC: Final = EndpointDoc(
    {"manageable-snapshots": list[ManageableSummary]}, manageable.PARAMETERS, _FAULTS
)
_DETAIL_DOC: Final = EndpointDoc(
    {"manageable-snapshots": list[ManageableDetail]}, manageable.PARAMETERS, _FAULTS
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
    """List the snapshots and the objects of a backend."""
    return {"manageable-snapshots": [_summary(item) for item in _page(ctx, query, version)]}


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
    return {"manageable-snapshots": [_detail(item) for item in _page(ctx, query, version)]}


def _summary(item: ManageableSnapshot) -> ManageableSummary:
    source = {"source-id": item["volume_id"]} if item["volume_id"] else {}
    return {**manageable.summary(item), "source_reference": source}


def _detail(item: ManageableSnapshot) -> ManageableDetail:
    return {
        **_summary(item),
        "reason_not_safe": item["refusal"] or None,
        "cinder_id": item["snapshot_id"] or None,
        "extra_info": None,
    }


def _page(ctx: RequestContext, query: Query, version: mv.Version) -> list[ManageableSnapshot]:
    """Return one page of what the backend lists."""

    def list_objects(host: str) -> list[ManageableSnapshot]:
        return manager_api.list_manageable_snapshots(ctx, manageable.backend_of(host))

    return manageable.read_page(query, version, list_objects)


@endpoint(
    "POST",
    COLLECTION,
    since=mv.MANAGE_EXISTING_LIST,
    policy=policy.MANAGE,
    body=schema.MANAGE,
    status=202,
    idempotent=IDEMPOTENCY_SPEC,
    doc=EndpointDoc({"snapshot": view.SnapshotDetail}, faults=(409, *_FAULTS)),
)
@endpoint(
    "POST",
    FORMER_COLLECTION,
    policy=policy.MANAGE,
    body=schema.MANAGE,
    status=202,
    idempotent=IDEMPOTENCY_SPEC,
    doc=EndpointDoc({"snapshot": view.SnapshotDetail}, faults=(409, *_FAULTS)),
)
def manage(
    ctx: RequestContext,
    body: Body,
    version: mv.Version,
    idempotency_claim: idempotency.IdempotencyClaim | None = None,
) -> Body:
    """Store a snapshot of a volume, and have its backend make it of an object."""
    requested = body["snapshot"]
    volume = volume_load.get(ctx, requested["volume_id"], policy.MANAGE)
    values = {
        **create_params.name_and_description(requested),
        "metadata": requested.get("metadata") or {},
    }
    if backend_calls.find(ctx, idempotency_claim) is None:
        values |= _object_values(ctx, volume, requested["ref"])
    statuses = snapshot_rules.SOURCE_STATUSES
    row = backend_calls.create(ctx, volume, values, statuses, idempotency_claim)
    return {"snapshot": view.plain(row, version)}


def _object_values(
    ctx: RequestContext, volume: Volume, requested: str | Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of a snapshot that is to be made of an object.

    :raises NoValidBackend: the backend of the volume cannot do this
    :raises InvalidInput: there is no such object
    :raises InvalidSnapshot: it is refused
    """
    reference = {manageable.NAME: requested} if isinstance(requested, str) else dict(requested)
    if not all(isinstance(text, str) for text in reference.values()):
        raise exception.InvalidInput(
            field="snapshot.ref",
            value=validation.abbreviate(requested),
            reason="It must be a name, or an object with names.",
        )
    backend_calls.check_can_manage(volume)
    found = manager_api.get_manageable_snapshot(ctx, volume.backend, volume.id, reference)
    size = manageable.size_gib(found)
    refusal = found["refusal"]
    if not refusal and found["volume_id"] not in {"", volume.id}:
        refusal = f"It is of volume {found['volume_id']}."
    if not refusal and not 0 < size <= volume.size_gib:
        refusal = f"It has {size} GiB, and the volume {volume.size_gib}."
    if refusal:
        raise exception.InvalidSnapshot(
            reason=f"The object {reference} of {volume.backend} cannot be managed as a snapshot "
            f"of volume {volume.id}: {refusal}"
        )
    return {"size_gib": size, "provider": {snapshot_store.TO_MANAGE: reference}}


@action(ACTION_PATH, "os-unmanage", policy=policy.UNMANAGE, doc=EndpointDoc(faults=(503,)))
def unmanage(ctx: RequestContext, snapshot_id: str) -> None:
    """Remove a snapshot and keep its data at the backend; the value under the key is ignored."""
    row = load.get(ctx, snapshot_id, policy.UNMANAGE)
    try:
        backend_calls.unmanage(ctx, row)
    except exception.InvalidTransition as error:
        raise exception.InvalidSnapshot(
            reason=f"Snapshot {row['id']} status must be available, or error, to be unmanaged, "
            f"but its status is {row['state']}."
        ) from error
