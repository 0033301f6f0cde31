# SPDX-License-Identifier: Apache-2.0
"""QoS specs: what a volume may take, and who sees to it; associations.py says of which types."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NotRequired, cast

from attachd.api import fields, paging
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.links import Link, Links
from attachd.api.qos_specs import policy, schema, view
from attachd.db import qos_specs

ITEM = "/qos-specs/{qos_specs_id}"

FILTERS: Final = ("id", "name", "consumer")
SORT_KEYS: Final = MappingProxyType({name: name for name in qos_specs.SORTABLE})
_USUAL_CONSUMER: Final = "back-end"
"""As the Block Storage API has it for whoever does not say."""

Body = dict[str, Any]
Query = Mapping[str, str]

_DOC: Final = EndpointDoc(
    {"qos_specs": list[view.Brief], "qos_specs_links": NotRequired[list[Link]]},
    paging.PAGE_PARAMETERS,
)
_DOC_DELETE: Final = EndpointDoc(
    parameters={"force": fields.query_flag("Although volume types have them.")}
)


@endpoint("GET", "/qos-specs", policy=policy.GET_ALL, doc=_DOC)
def index(query: Query, version: mv.Version, links: Links) -> Body:
    """Answer a page of QoS specs."""
    wanted = paging.read(query, SORT_KEYS)
    asked = paging.filters(query, FILTERS, version)
    rows = qos_specs.page(cast("qos_specs.Filters", asked), wanted)
    answer: Body = {"qos_specs": [view.brief(row) for row in rows]}
    if more := paging.next_link(links, "/qos-specs", query, wanted, rows):
        answer["qos_specs_links"] = more
    return answer


@endpoint(
    "POST",
    "/qos-specs",
    policy=policy.CREATE,
    body=schema.CREATE,
    doc=view.ONE._replace(faults=(409,)),
)
def create(body: Body, links: Links) -> Body:
    """Store new QoS specs; keys stand beside the name, and those that are null are left out."""
    wanted = dict(body["qos_specs"])
    name = wanted.pop("name").strip()
    consumer = wanted.pop("consumer", _USUAL_CONSUMER)
    specs = {key: value for key, value in wanted.items() if value is not None}
    return view.detail(qos_specs.create(name, consumer, specs), links)


@endpoint("GET", ITEM, policy=policy.GET, doc=view.ONE)
def show(qos_specs_id: str, links: Links) -> Body:
    """Answer the QoS specs of one id."""
    return view.detail(qos_specs.get(qos_specs_id), links)


@endpoint(
    "PUT",
    ITEM,
    policy=policy.UPDATE,
    body=schema.UPDATE,
    doc=EndpointDoc({"qos_specs": dict[str, str | None]}),
)
def update(qos_specs_id: str, body: Body) -> Body:
    """Set some keys and keep the others; whoever is attached keeps what they have."""
    wanted = dict(body["qos_specs"])
    consumer = wanted.pop("consumer", None)
    qos_specs.update(qos_specs_id, consumer, wanted)
    return body


@endpoint("PUT", f"{ITEM}/delete_keys", policy=policy.DELETE, body=schema.DELETE_KEYS, status=202)
def delete_keys(qos_specs_id: str, body: Body) -> None:
    """Remove some keys, all of them or none."""
    qos_specs.delete_keys(qos_specs_id, body["keys"])


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=202, doc=_DOC_DELETE)
def delete(qos_specs_id: str, query: Query) -> None:
    """Remove QoS specs; with ``force`` also those that volume types have."""
    if fields.truth("force", query.get("force", "false")):
        qos_specs.delete_and_disassociate(qos_specs_id)
    else:
        qos_specs.delete(qos_specs_id)
