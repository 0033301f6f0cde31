# SPDX-License-Identifier: Apache-2.0
"""Endpoints of QoS specs and of their association with volume types.

The Block Storage API changes associations by GET.  No driver of attachd limits anything by
itself: specs for the back end are stored and shown without effect, and a warning is logged.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NotRequired, cast

from oslo_log import log

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import paging, validation
from attachd.api.endpoint import EndpointDoc, Link, Links, endpoint
from attachd.api.qos_specs import policy, schema, view
from attachd.db.types import qos_specs, type_store

LOG = log.getLogger(__name__)

ITEM = "/qos-specs/{qos_specs_id}"

FILTERS: Final = ("id", "name", "consumer")
SORT_KEYS: Final = MappingProxyType({name: name for name in qos_specs.SORTABLE})
DEFAULT_CONSUMER: Final = "back-end"
"""The consumer if the caller gives none, as in the Block Storage API."""

Body = dict[str, Any]
Query = Mapping[str, str]

_LIST_DOC: Final = EndpointDoc(
    {"qos_specs": list[view.QosSpecs], "qos_specs_links": NotRequired[list[Link]]},
    paging.PAGE_PARAMETERS,
)
_DELETE_DOC: Final = EndpointDoc(
    parameters={"force": validation.query_flag("Delete them even if volume types have them.")}
)


@endpoint("GET", "/qos-specs", policy=policy.GET_ALL, doc=_LIST_DOC)
def index(query: Query, version: mv.Version, links: Links) -> Body:
    """Return a page of QoS specs."""
    page = paging.read(query, SORT_KEYS)
    requested = paging.filters(query, FILTERS, version)
    rows = qos_specs.page(cast("qos_specs.Filters", requested), page)
    answer: Body = {"qos_specs": [view.summary(row) for row in rows]}
    if more := paging.next_link(links, "/qos-specs", query, page, rows):
        answer["qos_specs_links"] = more
    return answer


@endpoint(
    "POST",
    "/qos-specs",
    policy=policy.CREATE,
    body=schema.CREATE,
    doc=view.ONE_DOC._replace(faults=(409,)),
)
def create(body: Body, links: Links) -> Body:
    """Store new QoS specs; keys are beside the name, and those that are null are left out."""
    requested = dict(body["qos_specs"])
    name = requested.pop("name").strip()
    consumer = requested.pop("consumer", DEFAULT_CONSUMER)
    specs = {key: value for key, value in requested.items() if value is not None}
    return view.detail(qos_specs.create(name, consumer, specs), links)


@endpoint("GET", ITEM, policy=policy.GET, doc=view.ONE_DOC)
def show(qos_specs_id: str, links: Links) -> Body:
    """Return QoS specs by id."""
    return view.detail(qos_specs.get(qos_specs_id), links)


@endpoint(
    "PUT",
    ITEM,
    policy=policy.UPDATE,
    body=schema.UPDATE,
    doc=EndpointDoc({"qos_specs": dict[str, str | None]}),
)
def update(qos_specs_id: str, body: Body) -> Body:
    """Set some keys and keep the others; existing attachments keep their values."""
    requested = dict(body["qos_specs"])
    consumer = requested.pop("consumer", None)
    qos_specs.update(qos_specs_id, consumer, requested)
    return body


@endpoint("PUT", f"{ITEM}/delete_keys", policy=policy.DELETE, body=schema.DELETE_KEYS, status=202)
def delete_keys(qos_specs_id: str, body: Body) -> None:
    """Remove some keys, all of them or none."""
    qos_specs.delete_keys(qos_specs_id, body["keys"])


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202, doc=_DELETE_DOC)
def delete(qos_specs_id: str, query: Query) -> None:
    """Remove QoS specs; with ``force`` also those that volume types have."""
    if validation.parse_bool("force", query.get("force", "false")):
        qos_specs.delete_and_disassociate(qos_specs_id)
    else:
        qos_specs.delete(qos_specs_id)


@endpoint(
    "GET",
    f"{ITEM}/associations",
    policy=policy.GET_ALL,
    doc=EndpointDoc({"qos_associations": list[view.Association]}),
)
def list_associations(qos_specs_id: str) -> Body:
    """Return the volume types that have the QoS specs."""
    qos_specs.get(qos_specs_id)
    volume_types = qos_specs.list_types(qos_specs_id)
    return {"qos_associations": [view.association(volume_type) for volume_type in volume_types]}


_ASSOCIATE_DOC = EndpointDoc(
    parameters={"vol_type_id": validation.query_text("The id of the volume type.")}
)


@endpoint("GET", f"{ITEM}/associate", policy=policy.UPDATE, status=202, doc=_ASSOCIATE_DOC)
def associate(qos_specs_id: str, query: Query) -> None:
    """Give a volume type the QoS specs; hosts that connect from now on receive them."""
    type_id = _type_id(query)
    row = qos_specs.get(qos_specs_id)
    qos_specs.associate(qos_specs_id, type_id)
    if row["consumer"] != "front-end":
        LOG.warning(
            "Volume type %s: QoS specs %s are for %s, but no backend limits anything by itself",
            type_id, qos_specs_id, row["consumer"],
        )  # fmt: skip


@endpoint("GET", f"{ITEM}/disassociate", policy=policy.UPDATE, status=202, doc=_ASSOCIATE_DOC)
def disassociate(qos_specs_id: str, query: Query) -> None:
    """Remove the QoS specs from a volume type, if it has them."""
    type_id = _type_id(query)
    qos_specs.get(qos_specs_id)
    type_store.get(type_id)
    qos_specs.disassociate(qos_specs_id, type_id)


@endpoint("GET", f"{ITEM}/disassociate_all", policy=policy.UPDATE, status=202)
def disassociate_all(qos_specs_id: str) -> None:
    """Remove the QoS specs from all volume types that have them."""
    qos_specs.get(qos_specs_id)
    qos_specs.disassociate_all(qos_specs_id)


def _type_id(query: Query) -> str:
    requested = query.get("vol_type_id")
    if not requested:
        raise exception.BadRequest(reason="Volume Type id must not be None.")
    return requested
