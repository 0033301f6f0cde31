# SPDX-License-Identifier: Apache-2.0
"""Who asks, for tests which call handlers themselves: real policy, and a database of their own."""

from typing import Any
import unittest

import webob

from attachd.api import links as made
from attachd.api import policy
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import models
from attachd.db.cluster import services
from attachd.db.types import store as types
from attachd.tests import databases, rows

MEMBER = ("member", "reader")
ADMIN = ("admin", "member", "reader")
OTHER_PROJECT = "b" * 32
BINARY = "attachd-manager"
ROOMY = {
    "protocol": "iSCSI",
    "total_gib": 100.0,
    "free_gib": 100.0,
    "allocated_gib": 0.0,
    "capabilities": {"multiattach": True, "read_only_enforced": True},
}


def use(test: unittest.TestCase) -> None:
    """Make a database and the default policy."""
    CONF([], project="attachd", default_config_files=[])
    databases.use(test)
    policy.forget()
    test.addCleanup(policy.forget)


def context(*roles: str, project: str | None = rows.PROJECT) -> RequestContext:
    """Return somebody with these roles, a member if there are none."""
    found = RequestContext(
        user_id="u",
        project_id=project,
        roles=list(roles or MEMBER),
        authorizer=policy.authorize,
        overwrite=False,
    )
    found.is_admin = policy.is_admin(found)
    return found


def links() -> made.Links:
    """Return what makes links for a request to http://api.example/v3/{project}/..."""
    return made.Links(webob.Request.blank("/", base_url="http://api.example"), rows.PROJECT)


def report(host: str = "here@fake", **values: Any) -> None:
    """Have a backend report; by default it has room and can do multiattach."""
    services.report(
        **{
            "binary": BINARY,
            "host": host,
            "availability_zone": "nova",
            "up": True,
            "error": None,
            "report": ROOMY,
            **values,
        }
    )


def add_type(name: str = "gold", **values: Any) -> dict[str, Any]:
    """Store a volume type."""
    return types.create({"name": name, **values})


def new_id() -> str:
    """Draw an id that nothing has."""
    return models.new_id()
