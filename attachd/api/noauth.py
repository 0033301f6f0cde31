# SPDX-License-Identifier: Apache-2.0
"""Believes what callers say of themselves: [api]auth_strategy = noauth; called by root.

No token at all means the project in the URL and every role.  So do tokens without a colon, of
which stock clients have several for "there is no authentication here".  A token
``user:project`` is what cinderclient's noauth sends; ``user:project:role,role`` restricts the
roles, which serves to try policies out.
"""

import re
from typing import Any

from attachd import exception
from attachd.api import policy
from attachd.context import RequestContext

NOBODYS_PROJECT = "0" * 32
"""The project where neither token nor URL name one."""
USER = "noauth"
ROLES = ("admin", "member", "reader")

_TOKEN = re.compile(r"([!-9;-~]{1,64}):([!-9;-~]{1,64})(?::([!-9;-~]*))?")


def identify(environ: dict[str, Any], url_project: str | None) -> RequestContext:
    """Return who asks.

    :raises Unauthorized: the token has another form
    :raises BadRequest: the URL is of another project than the token
    """
    user, project, roles = USER, url_project or NOBODYS_PROJECT, list(ROLES)
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if token and ":" in token:
        said = _TOKEN.fullmatch(token)
        if said is None:
            raise exception.Unauthorized(reason="A token is user:project[:role,role] here.")
        user, project = said[1], said[2]
        roles = [role for role in said[3].split(",") if role] if said[3] is not None else roles
        if url_project not in {None, project}:
            raise exception.BadRequest(reason="Malformed request url")
    context = RequestContext(
        user_id=user,
        project_id=project,
        roles=roles,
        auth_token=token,
        request_id=environ.get("openstack.request_id"),
        global_request_id=environ.get("openstack.global_request_id"),
        authorizer=policy.authorize,
    )
    context.is_admin = policy.is_admin(context)
    return context
