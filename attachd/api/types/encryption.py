# SPDX-License-Identifier: Apache-2.0
"""Endpoints of the encryption of volume types, which is not supported."""

from typing import Any, NoReturn

from attachd import exception, multiattach
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.types import lookup, policy, schema
from attachd.context import RequestContext

COLLECTION = "/types/{type_id}/encryption"
ITEM = f"{COLLECTION}/{{key}}"

Body = dict[str, Any]


@endpoint("GET", COLLECTION, policy=policy.GET_ENCRYPTION, doc=EndpointDoc({}))
def index(ctx: RequestContext, type_id: str) -> Body:
    """Return how a type's volumes are encrypted: not at all."""
    lookup.get(ctx, type_id)
    return {}


@endpoint("GET", ITEM, policy=policy.GET_ENCRYPTION)
def show(ctx: RequestContext, type_id: str) -> NoReturn:
    """Return one field of the encryption: there is none."""
    raise _not_found(ctx, type_id)


@endpoint("POST", COLLECTION, policy=policy.CREATE_ENCRYPTION, body=schema.ENCRYPTION)
def create(ctx: RequestContext, type_id: str) -> NoReturn:
    """Refuse encryption, because volumes of the type would not be encrypted."""
    row = lookup.get(ctx, type_id)
    reason = "This service has no encrypted volumes: a volume type cannot have encryption."
    if multiattach.parse(row["extra_specs"]).multiattach:
        reason += " Several hosts share the volumes of a multiattach one."
    raise exception.BadRequest(reason=f"{reason} Encrypt inside the server that uses the volume.")


@endpoint("PUT", ITEM, policy=policy.UPDATE_ENCRYPTION, body=schema.ENCRYPTION)
def update(ctx: RequestContext, type_id: str) -> NoReturn:
    """Change the encryption: there is none."""
    raise _not_found(ctx, type_id)


@endpoint("DELETE", ITEM, policy=policy.DELETE_ENCRYPTION, status=202)
def delete(ctx: RequestContext, type_id: str) -> NoReturn:
    """Remove the encryption: there is none."""
    raise _not_found(ctx, type_id)


def _not_found(ctx: RequestContext, type_id: str) -> exception.NotFound:
    lookup.get(ctx, type_id)
    return exception.NotFound(f"Volume type encryption for type {type_id} does not exist.")
