# SPDX-License-Identifier: Apache-2.0
"""Keystone authentication: [api]auth_strategy = keystone; loaded by app.

keystonemiddleware validates the tokens of user and service, as [keystone_authtoken] configures it.
The caller is read from the validated token, never from headers, which any client can send.
"""

from collections.abc import Sequence
import re
import threading
from time import monotonic
from typing import Any, Final

import cachetools
from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import loading
from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_log import log
import webob
from webob import exc

from attachd import exception
from attachd.api import identity
from attachd.api.identity import Application, Environ
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

GROUP: Final = "keystone_authtoken"
DEFAULT_OVERRIDES: Final = {
    # A request that waits for Keystone occupies a worker thread.
    "http_connect_timeout": 5,
    "http_request_max_retries": 1,
    # The service type in the catalogue, which access rules of application credentials name.
    "service_type": "block-storage",
    # Without it any user passes for a service.  keystonemiddleware before 13 has it off.
    "service_token_roles_required": True,
}
"""Defaults that replace those of keystonemiddleware."""

_ENVIRON_KEY: Final = "keystone.token_auth"
_CONFIRMED: Final = "Confirmed"
_CACHE: Final = "attachd.token_cache"
_TOKEN: Final = re.compile(r"[!-~]+")
_KEYSTONE_UNAVAILABLE: Final = "Keystone cannot validate the token at the moment. Try again later."


class KeystoneMiddleware(auth_token.AuthProtocol):
    """keystonemiddleware that answers 503 for all failures of Keystone."""

    def fetch_token(self, token: str, **kwargs: Any) -> Any:  # type: ignore[override]
        """Return what Keystone says of a token; reject what cannot be sent in a header."""
        if not _TOKEN.fullmatch(token):
            raise auth_token.InvalidToken
        return super().fetch_token(token, **kwargs)

    def process_request(self, request: webob.Request) -> webob.Response | None:
        """Validate the tokens of one request.

        :raises HTTPUnauthorized: a token is invalid
        :raises UnicodeDecodeError: the URL is malformed
        :raises Unavailable: Keystone does not answer
        """
        try:
            answer: webob.Response | None = super().process_request(request)
        except (exc.HTTPUnauthorized, UnicodeDecodeError):
            raise
        except exc.HTTPServiceUnavailable as error:  # keystonemiddleware has logged the reason
            raise exception.Unavailable(reason=_KEYSTONE_UNAVAILABLE) from error
        except Exception as error:
            LOG.exception("Token validation failed: Keystone does not answer as expected")
            raise exception.Unavailable(reason=_KEYSTONE_UNAVAILABLE) from error
        return answer


def wrap(application: Application) -> Application:
    """Put keystonemiddleware in front of an application.

    :raises ConfigurationError: [keystone_authtoken] is incomplete
    """
    options = CONF[GROUP]
    for name, value in DEFAULT_OVERRIDES.items():
        CONF.set_default(name, value, group=GROUP)
    if not (options.auth_type or options.auth_section):
        raise exception.ConfigurationError(
            reason=f"[{GROUP}] has no auth_type: set auth_type = password and the user with which "
            "attachd validates tokens."
        )
    # A request without a valid token is rejected here, not by the application.
    overrides: dict[str, Any] = {"delay_auth_decision": False}
    tokens = None
    if not (options.memcached_servers or options.cache):
        overrides["cache"] = _CACHE
        tokens = TokenCache(options.token_cache_time)
    try:
        guarded: Application = KeystoneMiddleware(application, overrides)
    except (auth_exceptions.ClientException, auth_token.ConfigurationError) as error:
        raise exception.ConfigurationError(reason=f"[{GROUP}] is invalid: {error}") from error

    def choose(environ: Environ, start_response: identity.StartResponse) -> Any:
        if not identity.needs_auth(environ):
            return application(environ, start_response)
        environ[_CACHE] = tokens
        return guarded(environ, start_response)

    return choose


def identify(environ: Environ, url_project: str | None) -> RequestContext:
    """Return the context of the caller that keystonemiddleware has authenticated.

    :raises Unauthorized: it has not seen this request, or found no user
    :raises BadRequest: the URL is of another project than the token
    """
    checked = environ.get(_ENVIRON_KEY)
    if (
        checked is None
        or checked.user is None
        or environ.get("HTTP_X_IDENTITY_STATUS") != _CONFIRMED
    ):
        raise exception.Unauthorized(reason=identity.UNAUTHENTICATED)
    user = checked.user
    return identity.context(
        environ,
        url_project,
        user_id=user.user_id,
        user_name=user.username,
        user_domain_id=user.user_domain_id,
        project_id=user.project_id,
        project_name=user.project_name,
        project_domain_id=user.project_domain_id,
        domain_id=user.domain_id,
        system_scope="all" if user.system_scoped else None,
        roles=list(user.role_names),
        is_admin_project=user.is_admin_project,
        auth_token=user.auth_token,
        **_service(checked.service, environ),
    )


def _service(service: Any, environ: Environ) -> dict[str, Any]:
    """Return the attributes of the service that sent the request, if it has a service token."""
    if service is None or environ.get("HTTP_X_SERVICE_IDENTITY_STATUS") != _CONFIRMED:
        return {}
    return {
        "service_user_id": service.user_id,
        "service_user_name": service.username,
        "service_user_domain_id": service.user_domain_id,
        "service_project_id": service.project_id,
        "service_project_name": service.project_name,
        "service_project_domain_id": service.project_domain_id,
        "service_roles": list(service.role_names),
    }


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options of [keystone_authtoken] with our defaults, for sample configurations.

    Those of auth_type = password are included, because most deployments need exactly these.
    """
    ((group, listed),) = auth_token.list_opts()
    password = loading.get_auth_plugin_conf_options("password")
    known = {option.dest for option in listed}
    options = [*listed, *(option for option in password if option.dest not in known)]
    kept = [option for option in options if not option.deprecated_for_removal]
    defaults = {name: value for name, value in DEFAULT_OVERRIDES.items() if name in known}
    cfg.set_defaults(kept, **defaults)
    return [(group, kept)]


MAX_TOKENS: Final = 2000
"""Tokens.  An entry takes some KiB, most of it the catalogue."""


class TokenCache:
    """The part of a memcached client that keystonemiddleware uses; shared by all threads.

    Used where there is no memcached.  keystonemiddleware has such a cache, too, but it is
    deprecated: there is one for each thread, without a limit, and it searches all of it with each
    request.

    :param time_to_live: in seconds, of all tokens; 0 or negative: nothing is cached
    """

    def __init__(self, time_to_live: float) -> None:
        self._lock = threading.Lock()
        self._tokens: cachetools.TTLCache[str, bytes] = cachetools.TTLCache(
            MAX_TOKENS, time_to_live, timer=monotonic
        )

    def get(self, key: str) -> bytes | None:
        """Return a value that has not expired, or None."""
        with self._lock:
            return self._tokens.get(key)

    def set(self, key: str, value: bytes, time: int = 0) -> None:  # noqa: ARG002  see __init__()
        """Store a value."""
        with self._lock:
            self._tokens[key] = value
