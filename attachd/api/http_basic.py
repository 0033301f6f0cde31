# SPDX-License-Identifier: Apache-2.0
"""HTTP basic authentication: [api]auth_strategy = http_basic; loaded by app.

Source: RFC 7617.  The users are those of :mod:`attachd.api.basic_auth_users`.
"""

from pathlib import Path
from typing import Any, Final

from oslo_log import log
from oslo_middleware import basic_auth
import webob
from webob import exc

from attachd import exception
from attachd.api import errors, identity
from attachd.api.basic_auth_users import User, UserStore
from attachd.api.identity import Application, Environ
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

_USER_KEY: Final = "attachd.account"
_CHALLENGE: Final = 'Basic realm="attachd", charset="UTF-8"'
_SHOWN: Final = 64


class BasicAuthMiddleware:
    """Middleware that checks name and password."""

    def __init__(self, application: Application, users: UserStore) -> None:
        self._inner = application
        self._users = users

    def __call__(self, environ: Environ, start_response: identity.StartResponse) -> Any:
        """Handle one request."""
        if identity.needs_auth(environ):
            user = self._authenticate(environ)
            if user is None:
                return _refuse(environ, start_response)
            environ[_USER_KEY] = user
        return self._inner(environ, start_response)

    def _authenticate(self, environ: Environ) -> User | None:
        try:
            # parse_header() also removes the password from what the application sees.
            name, password = basic_auth.parse_token(basic_auth.parse_header(environ))
        except exc.HTTPClientError:
            return None
        user = self._users.find(name, password)
        if user is None:
            LOG.warning(
                "Login failed: name %r from %s",
                name[:_SHOWN],
                environ.get("REMOTE_ADDR"),
            )
        return user


def _refuse(environ: Environ, start_response: identity.StartResponse) -> Any:
    fault = errors.fault(exception.Unauthorized(reason=identity.UNAUTHENTICATED), "")
    response = webob.Response(fault.body, fault.status, content_type="application/json")
    response.headers["WWW-Authenticate"] = _CHALLENGE
    return response(environ, start_response)


def wrap(application: Application) -> Application:
    """Put the check of name and password in front of an application.

    :raises ConfigurationError: the files with users are invalid
    """
    users = UserStore(Path(CONF.api.http_basic_user_file), Path(CONF.api.http_basic_roles_file))
    return BasicAuthMiddleware(application, users)


def identify(environ: Environ, url_project: str | None) -> RequestContext:
    """Return the context of the user that the middleware has authenticated.

    :raises Unauthorized: the middleware has not seen this request
    :raises BadRequest: the URL is of another project than the user
    """
    user = environ.get(_USER_KEY)
    if user is None:
        raise exception.Unauthorized(reason=identity.UNAUTHENTICATED)
    return identity.context(
        environ,
        url_project,
        user_id=user.name,
        user_name=user.name,
        project_id=user.project_id,
        roles=list(user.roles),
    )
