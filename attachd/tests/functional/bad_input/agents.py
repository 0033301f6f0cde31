# SPDX-License-Identifier: Apache-2.0
"""Bad requests for agents."""

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

OWN = {"version": f"{wsgi_api.LATEST}, attachd 1.0"}
ADMIN = {"token": wsgi_api.ADMIN}
MEMBER = {"token": wsgi_api.MEMBER, **OWN}


def _plain(claim: str, method: str, path: str, status: int, says: str) -> Row:
    return Row(claim, method, path, None, status, says, {**ADMIN, **OWN})


ROWS = [
    Row("agents: a member", "GET", "/agents", None, 403, "volume:agent_get", MEMBER),
    Row("agent: a member", "GET", "/agents/n", None, 403, "volume:agent_get", MEMBER),
    Row("delete: a member", "DELETE", "/agents/n", None, 403, "volume:agent_delete", MEMBER),
    Row("agents: not asked for", "GET", "/agents", None, 404, "not supported", ADMIN),
    Row("agent: not asked for", "GET", "/agents/n", None, 404, "not supported", ADMIN),
    Row("delete: not asked for", "DELETE", "/agents/n", None, 404, "not supported", ADMIN),
    _plain("agent: unknown", "GET", "/agents/nowhere", 404, "No agent of host nowhere"),
    _plain("agent: a novel", "GET", f"/agents/{'x' * 300}", 404, "could not be found"),
    _plain("agent: a NUL", "GET", "/agents/a%00", 404, "could not be found"),
    _plain("delete: unknown", "DELETE", "/agents/nowhere", 404, "No agent of host nowhere"),
]
