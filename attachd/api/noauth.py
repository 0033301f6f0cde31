# SPDX-License-Identifier: Apache-2.0
"""Believes what callers say of themselves: [api]auth_strategy = noauth; loaded by app.

No token at all means the project in the URL and every role.  So do tokens without a colon, of
which stock clients have several for "there is no authentication here".  A token
``user:project`` is what cinderclient's noauth sends; ``user:project:role,role`` restricts the
roles, which serves to try policies out.
"""

import re

from attachd import exception
from attachd.api import identity
from attachd.context import RequestContext

DEFAULT_PROJECT = "0" * 32
"""The project where neither token nor URL name one."""
USER = "noauth"
ROLES = ("admin", "member", "reader")

_TOKEN = re.compile(r"([!-9;-~]{1,64}):([!-9;-~]{1,64})(?::([!-9;-~]*))?")


def wrap(application: identity.Application) -> identity.Application:
    """Let everybody through."""
    return application


def identify(environ: identity.Environ, url_project: str | None) -> RequestContext:
    """Return who asks.

    :raises Unauthorized: the token has another form
    :raises BadRequest: the URL is of another project than the token
    """
    user, project, roles = USER, url_project or DEFAULT_PROJECT, list(ROLES)
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if token and ":" in token:
        said = _TOKEN.fullmatch(token)
        if said is None:
            raise exception.Unauthorized(reason="A token is user:project[:role,role] here.")
        user, project = said[1], said[2]
        roles = [role for role in said[3].split(",") if role] if said[3] is not None else roles
    return identity.context(
        environ, url_project, user_id=user, project_id=project, roles=roles, auth_token=token
    )
