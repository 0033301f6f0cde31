# SPDX-License-Identifier: Apache-2.0
"""Queries to Nova, with the caller's own token, about which server uses a volume.

The URL of Nova is that of [nova], else that of the catalogue of the caller's token.  A query is
one request with a timeout; connections are not kept, because queries are rare.

Source: the Compute API, "Show a detail of a volume attachment", 2.89.
"""

from collections.abc import Mapping
import json
from typing import Any, Final, NamedTuple
import urllib.parse

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import noauth, token_endpoint
from keystoneauth1.identity import v3
from oslo_log import log

from attachd import compute, exception
from attachd.conf import CONF
from attachd.context import RequestContext

LOG = log.getLogger(__name__)

_SERVICE: Final = "compute"
_SHOWN: Final = 200
_HINT: Final = (
    "Check [nova] and [keystone_authtoken]: whether both services ask the same Identity."
)
_REFUSALS: Final[Mapping[int, str]] = {
    401: f"it does not accept the token of this request. {_HINT}",
    406: f"it does not know its API version {compute.MICROVERSION}, which is needed.",
}


class VolumeUse(NamedTuple):
    """What Nova says of one server and one volume.

    :ivar attachment_id: of the attachment by which the server has the volume; None: it does not
    :ivar message: Nova's own reason if it does not
    """

    attachment_id: str | None
    message: str = ""


def find_compute(context: RequestContext, environ: Mapping[str, Any]) -> "ComputeApi | None":
    """Return the interface to Nova; None in a deployment without Nova.

    :param environ: of the request, as keystonemiddleware left it
    :raises Unavailable: it cannot be determined whether there is a Nova
    """
    if CONF.nova.endpoint_override:
        return ComputeApi(_plugin(CONF.nova.endpoint_override, context.auth_token))
    authenticated = environ.get("keystone.token_auth")
    if authenticated is None:
        return None
    if CONF.nova.token_auth_url:
        return ComputeApi(
            v3.Token(
                CONF.nova.token_auth_url,
                context.auth_token or "",
                project_id=context.project_id,
            )
        )
    url = _catalogue_url(authenticated.user)
    return ComputeApi(_plugin(url, context.auth_token)) if url else None


def _plugin(url: str, token: str | None) -> Any:
    return token_endpoint.Token(url, token) if token else noauth.NoAuth(endpoint=url)


def _catalogue_url(access: Any) -> str | None:
    """Return Nova's URL; None if the catalogue has no compute service."""
    if access is None or not access.has_service_catalog():
        raise _unavailable(
            "the token of this request has no service catalogue to find it in. Its operator sets "
            "endpoint_override or token_auth_url in [nova]."
        )
    catalogue = access.service_catalog
    if not catalogue.get_endpoints_data(service_type=_SERVICE).get(_SERVICE):
        return None
    try:
        url: str = catalogue.endpoint_data_for(service_type=_SERVICE, **_endpoint_filter()).url
    except auth_exceptions.CatalogException as error:
        raise _unavailable(_explain(error)) from error
    return url


def _endpoint_filter() -> dict[str, Any]:
    return {"interface": CONF.nova.interface, "region_name": CONF.nova.region_name}


class ComputeApi:
    """Nova over HTTP."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    def volume_use(self, server_id: str, volume_id: str) -> VolumeUse:
        """Return by which attachment a server has a volume.

        :raises Unavailable: there is no response, or none of Nova
        :raises Forbidden: Nova denies the query to the caller
        """
        server, volume = (urllib.parse.quote(part, safe="") for part in (server_id, volume_id))
        try:
            path = f"/servers/{server}/os-volume_attachments/{volume}"
            answer = compute.get(compute.connect(self._plugin), path)
        except (auth_exceptions.ClientException, OSError) as error:
            LOG.warning("Nova cannot be asked: %s", error)  # The response has no such details.
            raise _unavailable(_explain(error)) from error
        return _read(answer.status_code, answer.content)


def _explain(error: Exception) -> str:
    if isinstance(error, auth_exceptions.Unauthorized):
        return f"Identity does not accept the token of this request. {_HINT}"
    if isinstance(error, auth_exceptions.ConnectTimeout):
        return "it takes longer to answer than [nova] allows it to."
    if isinstance(error, auth_exceptions.CatalogException):
        where = ", ".join(f"{name} {value}" for name, value in _endpoint_filter().items() if value)
        return f"the service catalogue has no endpoint of it with {where}. Check [nova]."
    return f"it cannot be reached ({type(error).__name__})."


def _read(status: int, content: bytes) -> VolumeUse:
    """Parse a response; a 404 may come from another server than Nova, and proves nothing then."""
    if status == compute.FORBIDDEN:
        raise exception.Forbidden(
            "Compute does not answer this caller whether a server uses the volume, so the "
            "attachment cannot be deleted."
        )
    if status not in {compute.OK, compute.NOT_FOUND}:
        raise _unavailable(_REFUSALS.get(status, f"it answers with status {status}."))
    try:
        body = json.loads(content)
        if status == compute.NOT_FOUND:
            return VolumeUse(None, " ".join(str(body["itemNotFound"]["message"]).split())[:_SHOWN])
        return VolumeUse(str(body["volumeAttachment"]["attachment_id"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unavailable(
            f"the response with status {status} is not from Compute. Check endpoint_override in "
            "[nova] or the service catalogue: the URL ends in /v2.1."
        ) from None


def _unavailable(why: str) -> exception.Unavailable:
    return exception.Unavailable(
        reason="Compute cannot be asked whether a server uses this volume: "
        f"{why} Nothing has been changed; try again later."
    )
