# SPDX-License-Identifier: Apache-2.0
"""QoS specs as answers show them."""

from typing import Any, Final, Literal, TypedDict

from attachd.api.endpoint import EndpointDoc, Link, Links
from attachd.db.row_types import QosSpecsRow
from attachd.db.types.qos_specs import AssociatedType


class QosSpecs(TypedDict):
    """QoS specs."""

    id: str
    name: str
    consumer: str
    specs: dict[str, str]


class Association(TypedDict):
    """A volume type that has QoS specs."""

    association_type: Literal["volume_type"]
    name: str
    id: str


ONE_DOC: Final = EndpointDoc({"qos_specs": QosSpecs, "links": list[Link]})
"""The answer with one QoS specs."""


def summary(row: QosSpecsRow) -> dict[str, Any]:
    """Return QoS specs in a list."""
    return {
        "id": row["id"],
        "name": row["name"],
        "consumer": row["consumer"],
        "specs": row["specs"],
    }


def detail(row: QosSpecsRow, links: Links) -> dict[str, Any]:
    """Return QoS specs by themselves, with links beside them."""
    return {"qos_specs": summary(row), "links": links.build("qos-specs", row["id"])}


def association(volume_type: AssociatedType) -> dict[str, str]:
    """Return a volume type that has QoS specs."""
    return {
        "association_type": "volume_type",
        "name": volume_type["name"],
        "id": volume_type["id"],
    }
