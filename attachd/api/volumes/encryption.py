# SPDX-License-Identifier: Apache-2.0
"""The encryption of volumes: there is none, and clients that ask, such as Nova, are told so."""

from attachd import exception
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import load, policy
from attachd.context import RequestContext

COLLECTION = "/volumes/{volume_id}/encryption"


@endpoint(
    "GET", COLLECTION, policy=policy.ENCRYPTION, doc=EndpointDoc({"encryption_key_id": None})
)
def index(ctx: RequestContext, volume_id: str) -> dict[str, None]:
    """Answer how a volume is encrypted: not at all."""
    load.volume(ctx, volume_id, policy.ENCRYPTION)
    return {"encryption_key_id": None}


@endpoint("GET", f"{COLLECTION}/{{key}}", policy=policy.ENCRYPTION)
def show(ctx: RequestContext, volume_id: str, key: str) -> None:
    """Answer one of the fields: the one that there is has no value."""
    if key not in index(ctx, volume_id):
        raise exception.NotFound(f"Volume {volume_id} is not encrypted: it has no {key}.")
