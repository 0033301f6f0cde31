# SPDX-License-Identifier: Apache-2.0
"""What is known of the image on a volume, by actions; the views show it as well."""

from collections.abc import Mapping
from typing import Any

from attachd import exception
from attachd.api.actions import policy, schema
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.volumes import load
from attachd.api.volumes import policy as volume_policy
from attachd.context import RequestContext
from attachd.db import image_metadata

PATH = "/volumes/{volume_id}/action"

Body = dict[str, Any]

_ALL = EndpointDoc({"metadata": dict[str, str]})


@action(
    PATH,
    "os-set_image_metadata",
    policy=policy.SET_IMAGE_METADATA,
    body=schema.SET_IMAGE_METADATA,
    status=200,
    doc=_ALL,
)
def merge(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> Body:
    """Set some pairs, keep the others, and answer all."""
    volume = load.writable(ctx, volume_id, policy.SET_IMAGE_METADATA)
    return {"metadata": image_metadata.merge(volume.id, body["metadata"])}


@action(
    PATH,
    "os-unset_image_metadata",
    policy=policy.REMOVE_IMAGE_METADATA,
    body=schema.UNSET_IMAGE_METADATA,
    status=200,
)
def remove(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Remove one pair."""
    volume = load.writable(ctx, volume_id, policy.REMOVE_IMAGE_METADATA)
    image_metadata.delete(volume.id, body["key"])


@action(PATH, "os-show_image_metadata", policy=volume_policy.GET_METADATA, status=200, doc=_ALL)
def show(ctx: RequestContext, volume_id: str) -> Body:
    """Answer all pairs; whatever the action's name stands for is ignored.

    :raises NotFound: there are none
    """
    volume = load.volume(ctx, volume_id, volume_policy.GET_METADATA)
    pairs = image_metadata.get(volume.id)
    if not pairs:
        raise exception.NotFound(f"Volume {volume.id} has no image metadata.")
    return {"metadata": pairs}
