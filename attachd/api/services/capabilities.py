# SPDX-License-Identifier: Apache-2.0
"""What a backend can do, by its last report."""

from typing import Any

from attachd import exception, scheduler
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import policy, view
from attachd.db import services


@endpoint(
    "GET", "/capabilities/{host}", policy=policy.CAPABILITIES, doc=EndpointDoc(view.Capabilities)
)
def show(host: str) -> dict[str, Any]:
    """Answer what the backend ``host@backend`` can do."""
    backend = host.partition("#")[0]
    rows = services.page({"binary": scheduler.BINARY, "host": backend})
    if not rows:
        raise exception.NotFound(f"Can't find service: {host}")
    return view.capabilities(rows[0])
