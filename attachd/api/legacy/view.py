# SPDX-License-Identifier: Apache-2.0
"""The answer to os-initialize_connection."""

from collections.abc import Mapping
from typing import Any, TypedDict

from attachd.objects import connection_info
from attachd.rpc import manager_api


class Connection(TypedDict):
    """What os-brick's connect_volume() takes."""

    driver_volume_type: str
    data: dict[str, Any]
    enforce_multipath: bool


def connection(answer: manager_api.Connected, connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return what os-brick's connect_volume() takes.

    Some clients look for enforce_multipath beside the data, others in it.
    """
    multipath = {"enforce_multipath": connector.get("enforce_multipath", False)}
    data = connection_info.data(answer["connection_info"], answer["mode"])
    return {
        "connection_info": {
            "driver_volume_type": answer["connection_info"]["driver_volume_type"],
            "data": data | multipath,
            **multipath,
        }
    }
