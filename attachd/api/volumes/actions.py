# SPDX-License-Identifier: Apache-2.0
"""Actions of volumes, besides those that attach (api/legacy).

No backend needs the confirmation of an extended size by the volume's user: the manager extends the
volume, also online, before the new size is shown.  Storage that only its user can enlarge, such as
an image file that a hypervisor has open, would need one.

Retype keeps a volume on its backend.  The backend must provide what the new type asks for, or the
type is refused, with any ``migration_policy``: volumes do not move to other backends here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

from oslo_log import log
import webob

from attachd import exception, multiattach
from attachd.api import microversions as mv
from attachd.api import override, scheduler, validation
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.types import lookup
from attachd.api.volumes import backend_calls, create_params, load, notify, policy, schema
from attachd.api.volumes import force_delete as volume_force_delete
from attachd.context import RequestContext
from attachd.db.attachments import legacy
from attachd.db.row_types import VolumeTypeRow
from attachd.db.types import qos_specs, type_store
from attachd.db.volumes import snapshot_store, volume_metadata, volume_store, volume_updates
from attachd.objects import Volume
from attachd.rpc import manager_api

LOG = log.getLogger(__name__)

PATH = "/volumes/{volume_id}/action"

_ALLOWED_VALUES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        # A manager sets the states of its pending work.
        "status": frozenset(volume_store.RESET_STATES)
        - {"deleting", "error_deleting", "detaching"},
        "attach_status": frozenset({"attached", "detached"}),
        "migration_status": frozenset({"none"}),
    }
)
"""The values that an administrator may set; volumes do not migrate here."""

_STATUSES_OF_HOSTS: Final = frozenset({"available", "in-use"})
"""The statuses that say whether hosts have access; so does each attach_status."""

_MAX_DIFFERENCES: Final = 5
"""Differences that a message shows."""

_FORCE: Final = "force"
_RESET_PARAMETERS: Final = {
    _FORCE: validation.query_flag("attachd 1.0. Do not ask the backend of the volume.")
}


@action(
    PATH,
    "os-reset_status",
    policy=policy.RESET_STATUS,
    body=schema.RESET,
    doc=EndpointDoc(None, _RESET_PARAMETERS, (409, 429), frozenset(_RESET_PARAMETERS)),
)
def reset_status(
    ctx: RequestContext,
    volume_id: str,
    body: Mapping[str, str | None],
    query: Mapping[str, str],
) -> None:
    """Set a volume's status, unless its attachments or the exports of its backend contradict it.

    The backend is asked about the statuses that say whether hosts have access.
    """
    by_force = validation.parse_bool(_FORCE, query.get(_FORCE, "false"))
    volume = load.get(ctx, volume_id, policy.RESET_STATUS)
    claims = {field: text.lower() for field, text in body.items() if text}
    if not claims:
        raise exception.BadRequest(
            reason="Must specify 'status', 'attach_status' or 'migration_status' for update."
        )
    for field, claim in claims.items():
        if claim not in _ALLOWED_VALUES[field]:
            raise exception.InvalidInput(
                field=f"os-reset_status.{field}",
                value=claim,
                reason=f"It can be reset to {', '.join(sorted(_ALLOWED_VALUES[field]))}.",
            )
    if volume.host is None and claims.get("status", "error") != "error":
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} has no backend, because none has what its type asks for: "
            "delete it."
        )
    if volume.host and (claims.get("status") in _STATUSES_OF_HOSTS or "attach_status" in claims):
        if by_force:
            LOG.warning(
                "Volume %s: status reset to %s by force by user %s of project %s",
                *(volume.id, claims, ctx.user_id, ctx.project_id),
            )
        else:
            _check_backend(ctx, volume, claims)
    with notify.change(volume, "reset_status"):
        if claims.get("status") == "attaching" and volume.status == "available":
            volume_store.reset(
                volume.id, None, claims.get("attach_status")
            )  # a hold contradicts nothing
            # The status "attaching" without an attachment is that of a hold, as of os-reserve.
            legacy.reserve(volume.id, volume.project_id, ctx.user_id)
        volume_store.reset(volume.id, claims.get("status"), claims.get("attach_status"))


def _check_backend(ctx: RequestContext, volume: Volume, claims: Mapping[str, str]) -> None:
    """Check that the backend exports a volume to the hosts of its attachments, and to no others.

    For a status by which the volume can be used it also has to have the data.

    :raises Conflict: it does not
    :raises Unavailable: it cannot be asked
    """
    skip = f"?{_FORCE}=true under attachd {mv.ATTACHD_1_0} does not ask the backend."
    try:
        scheduler.check_reporting(volume.backend)
        has_data = claims.get("status") in _STATUSES_OF_HOSTS
        compare = manager_api.compare_volume if has_data else manager_api.compare_exports
        found = compare(ctx, volume)
    except (exception.Unavailable, exception.ManagerTimeout) as error:
        raise exception.Unavailable(
            reason=f"The status of volume {volume.id} was not reset, because its backend could "
            f"not be asked about its data and exports: {error} {skip}"
        ) from error
    if found:
        raise exception.Conflict(
            reason=f"Volume {volume.id} cannot be reset to {', '.join(claims.values())}: its "
            f"backend contradicts that. {' '.join(found[:_MAX_DIFFERENCES])} Have an operator run "
            "attachd-manage audit --repair, which corrects exports and says what to do about "
            f"missing data, and repeat the request; {skip}"
        )


@action(
    PATH,
    "os-force_delete",
    policy=policy.FORCE_DELETE_ACTION,
    doc=EndpointDoc(
        None, override.QUERY_PARAMETERS, (409, 429, 504), frozenset(override.QUERY_PARAMETERS)
    ),
)
def force_delete(ctx: RequestContext, volume_id: str, request: webob.Request) -> None:
    """Delete a volume by force; the value under the action's name is ignored."""
    volume_force_delete.delete(ctx, load.get(ctx, volume_id, policy.FORCE_DELETE_ACTION), request)


@action(
    PATH,
    "os-set_bootable",
    policy=policy.UPDATE,
    body=schema.SET_BOOTABLE,
    status=200,
)
def set_bootable(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Record whether servers may boot from a volume."""
    volume = load.get_writable(ctx, volume_id, policy.UPDATE)
    volume_store.update(
        volume.id, {"bootable": validation.parse_bool("bootable", body["bootable"])}
    )


@action(PATH, "os-update_readonly_flag", policy=policy.UPDATE_READONLY, body=schema.READONLY)
def update_readonly_flag(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Make later attachments of a volume read-only, or writable again."""
    volume = load.get(ctx, volume_id, policy.UPDATE_READONLY)
    if validation.parse_bool("readonly", body["readonly"]):
        volume_updates.set_read_only(volume.id)
    else:
        volume_updates.set_writable(volume.id)


Body = dict[str, Any]

_METADATA_DOC = EndpointDoc({"metadata": dict[str, str]})


@action(
    PATH,
    "os-set_image_metadata",
    policy=policy.SET_IMAGE_METADATA,
    body=schema.SET_IMAGE_METADATA,
    status=200,
    doc=_METADATA_DOC,
)
def set_image_metadata(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> Body:
    """Set some pairs, keep the others, and return all."""
    volume = load.get_writable(ctx, volume_id, policy.SET_IMAGE_METADATA)
    return {"metadata": volume_metadata.merge_image_metadata(volume.id, body["metadata"])}


@action(
    PATH,
    "os-unset_image_metadata",
    policy=policy.REMOVE_IMAGE_METADATA,
    body=schema.UNSET_IMAGE_METADATA,
    status=200,
)
def unset_image_metadata(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Remove one pair."""
    volume = load.get_writable(ctx, volume_id, policy.REMOVE_IMAGE_METADATA)
    volume_metadata.delete_image_metadata(volume.id, body["key"])


@action(
    PATH,
    "os-show_image_metadata",
    policy=policy.GET_METADATA,
    status=200,
    doc=_METADATA_DOC,
)
def show_image_metadata(ctx: RequestContext, volume_id: str) -> Body:
    """Return all pairs; the value under the action's name is ignored.

    :raises NotFound: there are none
    """
    volume = load.get(ctx, volume_id, policy.GET_METADATA)
    pairs = volume_metadata.get_image_metadata(volume.id)
    if not pairs:
        raise exception.NotFound(f"Volume {volume.id} has no image metadata.")
    return {"metadata": pairs}


@action(PATH, "os-extend", policy=policy.EXTEND, body=schema.EXTEND)
def extend(
    ctx: RequestContext, volume_id: str, body: Mapping[str, Any], version: mv.Version
) -> None:
    """Mark a volume and have its backend extend it; from 3.42 on also in use."""
    volume = load.get(ctx, volume_id, policy.EXTEND)
    size = int(body["new_size"])
    if size <= volume.size_gib:
        raise exception.InvalidInput(
            field="os-extend.new_size",
            value=size,
            reason="New size for extend must be greater than current size. "
            f"(current: {volume.size_gib}, extended: {size}).",
        )
    allowed = ["available", "in-use"] if version >= mv.VOLUME_EXTEND_INUSE else ["available"]
    refusal = exception.InvalidVolume(
        reason=f"Volume {volume.id} status must be {' or '.join(allowed)} to extend, "
        f"currently {volume.status}."
    )
    if volume.status not in allowed:
        raise refusal
    if volume.status == "in-use":
        ctx.authorize(policy.EXTEND_ATTACHED, volume)
    if volume.volume_type_id:
        create_params.check_size(type_store.get(volume.volume_type_id), size)
    try:
        backend_calls.extend(ctx, volume, size)
    except exception.InvalidTransition as error:
        raise refusal from error


@action(
    PATH,
    "revert",
    since=mv.VOLUME_REVERT,
    policy=policy.REVERT,
    body=schema.REVERT,
    doc=EndpointDoc(faults=(409,)),
)
def revert(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Have a volume get the data of its latest snapshot, which stays."""
    volume = load.get(ctx, volume_id, policy.REVERT)
    latest = next(iter(snapshot_store.list_of_volume(volume.id)), None)
    if latest is None:
        raise exception.BadRequest(reason=f"Volume {volume.id} doesn't have any snapshots.")
    snapshot_id = body.get("snapshot_id")
    if latest["project_id"] != volume.project_id:
        raise exception.BadRequest(
            reason=f"Volume {volume.id} cannot be reverted: its latest snapshot belongs to "
            "another project."
        )
    if snapshot_id != latest["id"]:
        raise exception.BadRequest(
            reason=f"Specified snapshot {snapshot_id} is None or not the latest one of volume "
            f"{volume.id}, which is {latest['id']}."
        )
    if volume.size_gib != latest["size_gib"]:
        raise exception.BadRequest(
            reason=f"Can't revert volume {volume.id} to its latest snapshot {snapshot_id}: the "
            f"volume size must be equal to the snapshot size, {latest['size_gib']} GiB."
        )
    try:
        backend_calls.revert(ctx, volume, latest["id"])
    except (exception.InvalidVolume, exception.InvalidSnapshot) as error:
        raise exception.Conflict(reason=str(error)) from error


@action(
    PATH,
    "os-extend_volume_completion",
    policy=policy.EXTEND_COMPLETION,
    body=schema.EXTEND_COMPLETION,
)
def complete_extend(ctx: RequestContext, volume_id: str) -> NoReturn:
    """Refuse a confirmation, because no volume waits for one.

    Versions before 3.71 answer the same; 3.71 only shows clients that they may call this.
    """
    volume = load.get(ctx, volume_id, policy.EXTEND_COMPLETION)
    if volume.status != "extending":
        raise exception.InvalidVolume(
            reason=f"Volume {volume.id} is not being extended, its status is {volume.status}."
        )
    raise exception.InvalidVolume(
        reason=f"Volume {volume.id} is extended by its backend, which needs no confirmation."
    )


@action(
    PATH,
    "os-retype",
    policy=policy.RETYPE,
    body=schema.RETYPE,
    doc=EndpointDoc(faults=(409,)),
)
def retype(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Give a volume another type; the change is complete when the answer is sent."""
    volume = load.get(ctx, volume_id, policy.RETYPE)
    volume_type = lookup.get_by_id_or_name(ctx, body["new_type"])
    if volume_type["id"] == volume.volume_type_id:
        raise exception.InvalidVolume(reason=f"Volume {volume.id} has that type already.")
    future = check_retype(volume, volume_type)
    if future.multiattach and not volume.multiattach:
        ctx.authorize(policy.MULTIATTACH, volume)
    judged = volume_type["extra_specs"]
    request = volume_updates.RetypeRequest(
        volume.volume_type_id, volume_type["id"], judged, future.statuses
    )
    volume_updates.retype(volume.id, volume.project_id, request)
    notify.retype(volume, volume_type["id"])


_AVAILABLE_ONLY: Final = ("available",)
_AVAILABLE_OR_IN_USE: Final = ("available", "in-use")
_AT_THE_HOST: Final = frozenset({"front-end", "both"})


class RetypeResult(NamedTuple):
    """A volume with its new type.

    :ivar multiattach: whether it is multiattach
    :ivar statuses: the statuses in which it may be retyped
    """

    multiattach: bool
    statuses: tuple[str, ...]


def check_retype(volume: Volume, volume_type: VolumeTypeRow) -> RetypeResult:
    """Check that a volume can have another type; return what it will be.

    :raises InvalidInput: its size does not fit the type; or it is in use, and its users would have
        to apply the change
    :raises BadRequest: its backend does not have what the type asks for
    """
    create_params.check_size(volume_type, volume.size_gib)
    before, after = _sharing(volume), multiattach.parse(volume_type["extra_specs"])
    changed = []
    if after != before:
        changed.append("how often and by whom it can be attached")
    if _front_end_qos(volume.volume_type_id) != _front_end_qos(volume_type["id"]):
        changed.append("what its hosts limit it to")
    if changed and volume.status != "available":
        raise exception.InvalidInput(
            field="os-retype.new_type",
            value=volume_type["name"],
            reason=f"It changes {' and '.join(changed)}, which is only possible while a volume "
            f"is available; the status of volume {volume.id} is {volume.status}.",
        )
    _check_backend_fits(volume, volume_type)
    return RetypeResult(after.multiattach, _AVAILABLE_ONLY if changed else _AVAILABLE_OR_IN_USE)


def _sharing(volume: Volume) -> multiattach.MultiattachSpec:
    if volume.volume_type_id is None:
        return multiattach.MultiattachSpec()
    return multiattach.parse(type_store.get(volume.volume_type_id)["extra_specs"])


def _front_end_qos(type_id: str | None) -> str | None:
    """Return the id of a type's QoS specs if hosts apply them, else None."""
    specs_id: str | None = type_store.get(type_id)["qos_specs_id"] if type_id else None
    if specs_id is None or qos_specs.get(specs_id)["consumer"] not in _AT_THE_HOST:
        return None
    return specs_id


def _check_backend_fits(volume: Volume, volume_type: VolumeTypeRow) -> None:
    try:
        scheduler.check_extra_specs(
            volume.host, volume_type["extra_specs"], volume.availability_zone
        )
    except exception.NoValidBackend as error:
        raise exception.BadRequest(
            reason=f"Volume {volume.id} cannot have the type {volume_type['name']} where it is, "
            f"and this service does not migrate volumes to other backends. {error}"
        ) from error
