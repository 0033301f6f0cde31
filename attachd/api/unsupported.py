# SPDX-License-Identifier: Apache-2.0
"""Resources and actions of the Block Storage API that this service does not support.

A request to an unsupported resource gets a 404 of the API with a sentence that says why: by every
method, at and below its URL, in the requested microversion.  An unsupported action gets a 400,
after policy and the existence of the volume were checked, so that it discloses nothing else.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.endpoint import Endpoint, action
from attachd.api.volumes import load, policy
from attachd.context import RequestContext

ACTION_PATH: Final = "/volumes/{volume_id}/action"

UNSUPPORTED_RESOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/snapshots": "snapshots",
        "/backups": "backups",
        "/groups": "groups of volumes",
        "/group_types": "group types",
        "/group_snapshots": "snapshots of groups",
        "/consistencygroups": "consistency groups",
        "/cgsnapshots": "snapshots of consistency groups",
        "/volume-transfers": "transfers of volumes",
        "/os-volume-transfer": "transfers of volumes",
        "/manageable_volumes": "volumes to be managed",
        "/os-volume-manage": "volumes to be managed",
        "/manageable_snapshots": "snapshots",
        "/os-snapshot-manage": "snapshots",
    }
)
"""The resources, in the plural, by their URL."""


class UnsupportedAction(NamedTuple):
    """An action on a volume.

    :ivar reason: why it is not supported, and what to do instead
    """

    name: str
    policy: str
    reason: str
    since: mv.Version = mv.BASE


UNSUPPORTED_ACTIONS: Final = (
    UnsupportedAction(
        "os-migrate_volume",
        policy.MIGRATE,
        "Volumes are not migrated by this service: create a volume at the other backend and "
        "copy the data.",
    ),
    UnsupportedAction(
        "os-migrate_volume_completion",
        policy.MIGRATE_COMPLETION,
        "Volumes are not migrated by this service: there is nothing to complete.",
    ),
    UnsupportedAction(
        "os-unmanage",
        policy.UNMANAGE,
        "Volumes are not taken out of the management of this service: delete the volume, or "
        "leave it.",
    ),
    UnsupportedAction(
        "os-volume_upload_image",
        policy.UPLOAD_IMAGE,
        "This service has no images: attach the volume and upload its data from there.",
    ),
    UnsupportedAction(
        "os-reimage",
        policy.REIMAGE,
        "This service has no images: attach the volume and write the image from there.",
        mv.SUPPORT_REIMAGE_VOLUME,
    ),
    UnsupportedAction(
        "revert",
        policy.REVERT,
        "This service has no snapshots: there is nothing to go back to.",
        mv.VOLUME_REVERT,
    ),
)


def list_endpoints() -> list[Endpoint]:
    """Return the endpoints that answer at and below the URL of each unsupported resource."""
    return [
        Endpoint("*", path, mv.MINIMUM, mv.LATEST, None, None, None, 404, _not_found(name), ())
        for path, name in UNSUPPORTED_RESOURCES.items()
    ]


def _not_found(resources: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise exception.ResourceUnsupported(things=resources)

    return refuse


def _refused(unsupported: UnsupportedAction) -> Callable[[RequestContext, str], NoReturn]:
    def refuse(ctx: RequestContext, volume_id: str) -> NoReturn:
        """Answer 400, with the reason."""
        load.get(ctx, volume_id, unsupported.policy)
        raise exception.BadRequest(
            reason=f"{unsupported.name} is not supported. {unsupported.reason}"
        )

    return refuse


for _action in UNSUPPORTED_ACTIONS:
    action(ACTION_PATH, _action.name, since=_action.since, policy=_action.policy)(
        _refused(_action)
    )
