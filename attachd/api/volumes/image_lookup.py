# SPDX-License-Identifier: Apache-2.0
"""The image of a new volume, as its caller sees it.

Source: the Block Storage API, "Create a volume": imageRef is an id, a name or a URL.
"""

from collections.abc import Mapping
from typing import Any, Final

from oslo_utils import uuidutils

from attachd import exception
from attachd.context import RequestContext
from attachd.images.glance import Image, ImageApi

FIELDS: Final = ("imageRef", "image_id")
"""The fields of a body that name an image."""


def connect(ctx: RequestContext) -> ImageApi:
    """Return the Image service as a caller sees it; an administrator without a token sees all.

    :raises: as ImageApi.of_service()
    """
    return ImageApi.of_caller(ctx.auth_token, None if ctx.is_admin else ctx.project_id or "")


def requested_image(ctx: RequestContext, requested: Mapping[str, Any]) -> Image | None:
    """Return the image that a volume is to be made of; None: of none.

    :param requested: ``volume`` of the body
    :raises BadRequest: there is none that the caller sees, or another source is named as well
    :raises Conflict: several have the name
    :raises Unavailable: the Image service does not answer
    """
    reference = next((requested[name] for name in FIELDS if requested.get(name)), None)
    if not reference:
        return None
    if requested.get("source_volid") or requested.get("snapshot_id"):
        raise exception.BadRequest(
            reason="A volume is made of imageRef, source_volid or snapshot_id: name one of them."
        )
    api = connect(ctx)
    image_id = reference.rpartition("/")[2]
    if uuidutils.is_uuid_like(image_id):
        try:
            return api.get(image_id)
        except exception.ImageNotFound:
            pass  # It may be a name.
    return _find_by_name(api, reference)


def _find_by_name(api: ImageApi, name: str) -> Image:
    found = api.find(name)
    if len(found) > 1:
        raise exception.Conflict(
            reason=f"Multiple matches found for '{name}', use an ID to be more specific."
        )
    if not found:
        raise exception.BadRequest(
            reason="Invalid image identifier or unable to access requested image: "
            f"there is no image {name}."
        )
    return found[0]
