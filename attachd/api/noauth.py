# SPDX-License-Identifier: Apache-2.0
"""No authentication: [api]auth_strategy = noauth, for tests and trusted networks; loaded by app.

A request without a token has the project of the URL and every role.  So has a token without a
colon, which several stock clients send for "no authentication".  A token ``user:project``, as
cinderclient's noauth sends it, sets user and project; ``user:project:role,role`` restricts the
roles, to try policies.
"""

import re

from attachd import exception
from attachd.api import identity
from attachd.context import RequestContext

DEFAULT_PROJECT = "0" * 32
"""The project if neither token nor URL name one."""
USER = "noauth"
ROLES = ("admin", "member", "reader")

_TOKEN = re.compile(r"([!-9;-~]{1,64}):([!-9;-~]{1,64})(?::([!-9;-~]*))?")


def wrap(application: identity.Application) -> identity.Application:
    """Return the application unchanged."""
    return application


def identify(environ: identity.Environ, url_project: str | None) -> RequestContext:
    """Return the context of the caller.

    :raises Unauthorized: the token has another form
    :raises BadRequest: the URL is of another project than the token
    """
    user, project, roles = USER, url_project or DEFAULT_PROJECT, list(ROLES)
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if token and ":" in token:
        said = _TOKEN.fullmatch(token)
        if said is None:
            raise exception.Unauthorized(
                reason="The token must have the form user:project[:role,role]."
            )
        user, project = said[1], said[2]
        roles = [role for role in said[3].split(",") if role] if said[3] is not None else roles
    return identity.context(
        environ, url_project, user_id=user, project_id=project, roles=roles, auth_token=token
    )
