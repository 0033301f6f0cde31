# SPDX-License-Identifier: Apache-2.0
"""What all ways to identify callers share; each [api]auth_strategy is a module of its name here.

Such a module has two functions, used by app and root: ``wrap(application)`` returns the
application behind what checks callers, ``identify(environ, url_project)`` returns who asks.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from attachd import exception
from attachd.api import policy
from attachd.context import RequestContext

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

AUTHENTICATED_PATH: Final = "/v3"
"""Only discovery at / and the health check are there for everybody."""
UNAUTHENTICATED: Final = "The request you have made requires authentication."


class Strategy(Protocol):
    """What a module of this kind looks like."""

    @staticmethod
    def wrap(application: Application) -> Application:
        """Put what checks callers in front.

        :raises ConfigurationError: it cannot work as it is configured
        """

    @staticmethod
    def identify(environ: Environ, url_project: str | None) -> RequestContext:
        """Return who asks.

        :param url_project: the project id in the URL
        :raises Unauthorized: nobody knows
        :raises BadRequest: the URL is of another project than the caller
        """


def needs_auth(environ: Environ) -> bool:
    """Tell whether a request is for those only who say who they are."""
    path = environ.get("PATH_INFO", "")
    return bool(path == AUTHENTICATED_PATH or path.startswith(f"{AUTHENTICATED_PATH}/"))


def context(environ: Environ, url_project: str | None, **who: Any) -> RequestContext:
    """Return the context of a caller in one project.

    :param who: what RequestContext knows of a caller, with ``project_id``
    :raises BadRequest: the URL is of another project
    """
    if url_project not in {None, who["project_id"]}:
        raise exception.BadRequest(reason="Malformed request url")
    made = RequestContext(
        request_id=environ.get("openstack.request_id"),
        global_request_id=environ.get("openstack.global_request_id"),
        authorizer=policy.authorize,
        **who,
    )
    made.is_admin = policy.is_admin(made)
    return made
