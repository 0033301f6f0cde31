# SPDX-License-Identifier: Apache-2.0
"""Which volume types have which QoS specs; changed by GET, as the Block Storage API has it.

No driver of attachd limits anything by itself: what is meant for the back end is kept, and shown,
and does nothing.  Whoever relies on it is told in the log.
"""

from collections.abc import Mapping
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.api import fields
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.qos_specs import policy, view
from attachd.db import qos_specs, types

LOG = log.getLogger(__name__)

ITEM = "/qos-specs/{qos_specs_id}"

Body = dict[str, Any]
Query = Mapping[str, str]


@endpoint(
    "GET",
    f"{ITEM}/associations",
    policy=policy.GET_ALL,
    doc=EndpointDoc({"qos_associations": list[view.Association]}),
)
def index(qos_specs_id: str) -> Body:
    """Answer the volume types that have the QoS specs."""
    qos_specs.get(qos_specs_id)
    kinds = qos_specs.types_with(qos_specs_id)
    return {"qos_associations": [view.association(kind) for kind in kinds]}


_DOC = EndpointDoc(parameters={"vol_type_id": fields.query_text("The id of the volume type.")})


@endpoint("GET", f"{ITEM}/associate", policy=policy.UPDATE, status=202, doc=_DOC)
def associate(qos_specs_id: str, query: Query) -> None:
    """Give a volume type the QoS specs: hosts that connect from now on hear of them."""
    type_id = _type_id(query)
    row = qos_specs.get(qos_specs_id)
    qos_specs.associate(qos_specs_id, type_id)
    if row["consumer"] != "front-end":
        LOG.warning(
            "Volume type %s has QoS specs %s for %s: no backend limits anything by itself",
            type_id, qos_specs_id, row["consumer"],
        )  # fmt: skip


@endpoint("GET", f"{ITEM}/disassociate", policy=policy.UPDATE, status=202, doc=_DOC)
def disassociate(qos_specs_id: str, query: Query) -> None:
    """Take the QoS specs from a volume type, if it has them."""
    type_id = _type_id(query)
    qos_specs.get(qos_specs_id)
    types.get(type_id)
    qos_specs.disassociate(qos_specs_id, type_id)


@endpoint("GET", f"{ITEM}/disassociate_all", policy=policy.UPDATE, status=202)
def disassociate_all(qos_specs_id: str) -> None:
    """Take the QoS specs from all volume types that have them."""
    qos_specs.get(qos_specs_id)
    qos_specs.disassociate_all(qos_specs_id)


def _type_id(query: Query) -> str:
    wanted = query.get("vol_type_id")
    if not wanted:
        raise exception.BadRequest(reason="Volume Type id must not be None.")
    return wanted
