# SPDX-License-Identifier: Apache-2.0
"""Common parts of the authentication strategies; each [api]auth_strategy is a module in api/.

Such a module has two functions, used by app and root: ``wrap(application)`` puts the
authentication middleware in front of an application, ``identify(environ, url_project)`` returns
the context of the caller.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from oslo_config import cfg

from attachd import exception
from attachd.api import policy_rules
from attachd.conf import CONF
from attachd.context import RequestContext

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

AUTHENTICATED_PATH: Final = "/v3"
"""Requests below this path are authenticated; discovery at / and the health check are not."""
UNAUTHENTICATED: Final = "The request you have made requires authentication."


class Strategy(Protocol):
    """The interface of a strategy module."""

    @staticmethod
    def wrap(application: Application) -> Application:
        """Put the authentication middleware in front of an application.

        :raises ConfigurationError: the configuration is incomplete or invalid
        """

    @staticmethod
    def identify(environ: Environ, url_project: str | None) -> RequestContext:
        """Return the context of the caller.

        :param url_project: the project id in the URL
        :raises Unauthorized: the request is not authenticated
        :raises BadRequest: the URL is of another project than the caller
        """


def needs_auth(environ: Environ) -> bool:
    """Return whether a request has to be authenticated."""
    path = environ.get("PATH_INFO", "")
    return bool(path == AUTHENTICATED_PATH or path.startswith(f"{AUTHENTICATED_PATH}/"))


def context(environ: Environ, url_project: str | None, **who: Any) -> RequestContext:
    """Return the context of a caller in one project.

    :param who: the caller's attributes of RequestContext, with ``project_id``
    :raises BadRequest: the URL is of another project
    """
    if url_project not in {None, who["project_id"]}:
        raise exception.BadRequest(reason="Malformed request url")
    request_context = RequestContext(
        request_id=environ.get("openstack.request_id"),
        global_request_id=environ.get("openstack.global_request_id"),
        authorizer=policy_rules.authorize,
        **who,
    )
    request_context.is_admin = policy_rules.is_admin(request_context)
    request_context.by_service = is_service(request_context)
    return request_context


def is_service(ctx: RequestContext) -> bool:
    """Return whether the request carries a service token with a role of a service."""
    return bool(ctx.service_roles) and not _service_roles().isdisjoint(ctx.service_roles)


def _service_roles() -> set[str]:
    try:
        return set(CONF.keystone_authtoken.service_token_roles)
    except cfg.NoSuchOptError:  # keystonemiddleware is not loaded, so service tokens are unchecked
        return {"service"}
