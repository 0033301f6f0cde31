# SPDX-License-Identifier: Apache-2.0
"""Actions of the Block Storage API that this service does not support.

Policy and the volume's existence are checked first, so that a refusal discloses nothing else.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.actions import policy
from attachd.api.endpoint import action
from attachd.api.volumes import load
from attachd.context import RequestContext

PATH = "/volumes/{volume_id}/action"


class UnsupportedAction(NamedTuple):
    """An action that is refused.

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


def _handler(refusal: UnsupportedAction) -> Callable[[RequestContext, str], NoReturn]:
    def refuse(ctx: RequestContext, volume_id: str) -> NoReturn:
        """Answer 400, with the reason."""
        load.get(ctx, volume_id, refusal.policy)
        raise exception.BadRequest(reason=f"{refusal.name} is not supported. {refusal.reason}")

    return refuse


for _each in UNSUPPORTED_ACTIONS:
    action(PATH, _each.name, since=_each.since, policy=_each.policy)(_handler(_each))
