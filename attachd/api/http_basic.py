# SPDX-License-Identifier: Apache-2.0
"""Asks for name and password: [api]auth_strategy = http_basic; loaded by app.

Source: RFC 7617.  Who may come in is what :mod:`attachd.api.accounts` reads from two files.
"""

from pathlib import Path
from typing import Any, Final

from oslo_log import log
from oslo_middleware import basic_auth
import webob
from webob import exc

from attachd import exception
from attachd.api import errors, identity
from attachd.api.accounts import Account, Accounts
from attachd.api.identity import Application, Environ
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

_ACCOUNT: Final = "attachd.account"
_CHALLENGE: Final = 'Basic realm="attachd", charset="UTF-8"'
_SHOWN: Final = 64


class Guard:
    """Lets in whoever has an account."""

    def __init__(self, application: Application, accounts: Accounts) -> None:
        self._inner = application
        self._accounts = accounts

    def __call__(self, environ: Environ, start_response: identity.StartResponse) -> Any:
        """Answer one request."""
        if identity.is_guarded(environ):
            account = self._account(environ)
            if account is None:
                return _refuse(environ, start_response)
            environ[_ACCOUNT] = account
        return self._inner(environ, start_response)

    def _account(self, environ: Environ) -> Account | None:
        try:
            # This takes the password out of what others see.
            name, password = basic_auth.parse_token(basic_auth.parse_header(environ))
        except exc.HTTPClientError:
            return None
        account = self._accounts.find(name, password)
        if account is None:
            LOG.warning(
                "No account fits the name %r and the password of a request from %s",
                name[:_SHOWN],
                environ.get("REMOTE_ADDR"),
            )
        return account


def _refuse(environ: Environ, start_response: identity.StartResponse) -> Any:
    fault = errors.fault(exception.Unauthorized(reason=identity.UNIDENTIFIED), "")
    response = webob.Response(fault.body, fault.status, content_type="application/json")
    response.headers["WWW-Authenticate"] = _CHALLENGE
    return response(environ, start_response)


def guard(application: Application) -> Application:
    """Ask for name and password in front.

    :raises ConfigurationError: the files with accounts cannot be used
    """
    accounts = Accounts(Path(CONF.api.http_basic_user_file), Path(CONF.api.http_basic_roles_file))
    return Guard(application, accounts)


def identify(environ: Environ, url_project: str | None) -> RequestContext:
    """Return who asks, as the guard has found it.

    :raises Unauthorized: it has not looked at this request
    :raises BadRequest: the URL is of another project than the account
    """
    account = environ.get(_ACCOUNT)
    if account is None:
        raise exception.Unauthorized(reason=identity.UNIDENTIFIED)
    return identity.context(
        environ,
        url_project,
        user_id=account.name,
        user_name=account.name,
        project_id=account.project_id,
        roles=list(account.roles),
    )
