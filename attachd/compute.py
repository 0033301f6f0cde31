# SPDX-License-Identifier: Apache-2.0
"""HTTP requests to the Compute API; used by api/nova.py, by the audit and for external events.

A user's question is sent with the user's own token (api/nova.py).  An audit reads the servers of
all projects with the credentials in [nova], one request after the other.  External events about
volumes are sent with these credentials as well.

Source: the Compute API, "List Servers Detailed", "List volume attachments for an instance" and
"Handling Down Cells", 2.89; "Create External Events", 2.51.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import time
from typing import Any, Final, NamedTuple
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as auth_exceptions

from attachd import service_session
from attachd.conf import CONF

MICROVERSION: Final = "2.89"
"""The first one that has the id of the attachment."""

EVENTS_MICROVERSION: Final = "2.51"
"""The first one that has the event volume-extended."""

REIMAGED: Final = "volume-reimaged"
REIMAGED_MICROVERSION: Final = "2.93"
"""The first one that has this event."""

OK: Final = 200
ACCEPTED: Final = 202
MULTI_STATUS: Final = 207
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
NOT_ACCEPTABLE: Final = 406
UNPROCESSABLE: Final = 422

_SHOWN_BYTES: Final = 500
"""How much of a refusal of Compute is shown."""

_GROUP: Final = "nova"
_SERVICE: Final = "compute"
_CELL_DOWN: Final = "UNKNOWN"
"""The status of a server whose cell does not answer."""

_BUILDING: Final = "BUILD"

_VOLUMES: Final = "os-extended-volumes:volumes_attached"
_HOST: Final = "OS-EXT-SRV-ATTR:host"
_HOST_NAMES: Final = (_HOST, "OS-EXT-SRV-ATTR:hypervisor_hostname", "OS-EXT-SRV-ATTR:hostname")
"""What a connector may name: the compute service, its node, or a bare-metal server itself."""

_REFUSALS: Final[Mapping[int, str]] = {
    UNAUTHORIZED: "Compute does not accept the token of the credentials in [nova].",
    FORBIDDEN: "Compute denies the user of the credentials in [nova] to list the servers of all "
    "projects: give it the role of an administrator, or a reader role that Compute's policy "
    "accepts.",
    NOT_ACCEPTABLE: f"Compute does not know its API version {MICROVERSION}, which is needed.",
}
_EVENT_REFUSALS: Final[Mapping[int, str]] = {
    BAD_REQUEST: "Compute does not understand the event. Check [nova]: whether the URL is that of "
    "Compute.",
    UNAUTHORIZED: _REFUSALS[UNAUTHORIZED],
    FORBIDDEN: "Compute denies the user of the credentials in [nova] to create external events: "
    "give it the role service, or admin, as the rule "
    "os_compute_api:os-server-external-events:create of Compute's policy requires.",
    NOT_ACCEPTABLE: f"Compute does not know its API version {EVENTS_MICROVERSION}, which external "
    "events need.",
}
"""Statuses of a whole answer; an operator can change what they mean."""

_FINAL_CODES: Final[Mapping[int, str]] = {
    NOT_FOUND: "it does not know the server",
    UNPROCESSABLE: "it has the server on no host",
}
"""Codes of one event that the next attempt would get as well."""

_NOT_COMPUTE: Final = (
    "The answer is not one of Compute. Check [nova]: the URL of Compute ends in /v2.1."
)


class Failure(Exception):
    """Compute gave no usable answer.

    :ivar is_final: the next requests would fail as well
    """

    def __init__(self, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


class EventRefused(Exception):
    """Compute refuses an event; it would do so again."""


class Server(NamedTuple):
    """What Compute says of one server.

    :ivar host: its compute service; None: it is on none, or Compute does not show it
    :ivar host_names: what the connector of its host may name; None: Compute does not show it
    :ivar volume_ids: of its volumes
    :ivar is_readable: whether its cell answers; the rest is empty if it does not
    :ivar is_busy: whether Compute works on it: builds, migrates, resizes or deletes it
    """

    id: str
    host: str | None
    host_names: frozenset[str] | None
    volume_ids: frozenset[str]
    is_readable: bool
    is_busy: bool


class VolumeAttachment(NamedTuple):
    """One volume of a server.

    :ivar attachment_id: None: it is not known
    """

    attachment_id: str | None
    volume_id: str


def connect(plugin: Any) -> adapter.Adapter:
    """Return an adapter of keystoneauth to Compute, with the options of [nova].

    :param plugin: of keystoneauth: a token, or credentials
    """
    return service_session.connect(_GROUP, plugin, _SERVICE, default_microversion=MICROVERSION)


def get(compute: adapter.Adapter, path: str) -> Any:
    """Read something; return the response as :func:`send` does."""
    return send(compute, "GET", path)


def send(compute: adapter.Adapter, method: str, path: str, **options: Any) -> Any:
    """Send one request; return the response, with any status.

    :raises ClientException, OSError: there is none
    """
    return service_session.send(compute, _GROUP, method, path, **options)


def has_credentials() -> bool:
    """Return whether [nova] has credentials, which external events and audits need."""
    return service_session.has_credentials(_GROUP)


def load_credentials() -> Any:
    """Return the plug-in of keystoneauth that [nova] configures for audits and external events.

    :raises ConfigurationError: it configures none, or not completely
    """
    return service_session.load_credentials(_GROUP, "may list the servers of all projects")


class ComputeReader:
    """Reads the servers of all projects, within [nova]audit_requests and audit_timeout.

    One request changes something: :meth:`detach`, for a repair.
    """

    def __init__(self, plugin: Any) -> None:
        self._adapter = connect(plugin)
        self._adapter.endpoint_override = CONF.nova.endpoint_override
        self._requests = 0
        self._deadline = time.monotonic() + CONF.nova.audit_timeout

    def list_servers(self) -> Iterator[Server]:
        """Yield all servers, without those in cells that do not answer.

        :raises Failure: the list ends here, and is not complete
        """
        marker, seen = "", set()
        while True:
            query = urllib.parse.urlencode(
                {"all_tenants": "1", **({"marker": marker} if marker else {})}
            )
            page = self._get(f"/servers/detail?{query}")
            servers = [_parse_server(body) for body in _field(page, "servers")]
            yield from servers
            if not servers or not page.get("servers_links"):
                return
            # The address of the next page may be one that only clients of a proxy reach.
            marker = servers[-1].id
            if marker in seen:
                raise Failure("Compute returns the same page of servers again.")
            seen.add(marker)

    def find_server(self, server_id: str) -> Server | None:
        """Return a server; None: Compute says that there is none.

        :raises Failure: that cannot be determined
        """
        body = self._find(f"/servers/{_quoted(server_id)}")
        return None if body is None else _parse_server(_field(body, "server"))

    def list_attachments(self, server_id: str) -> list[VolumeAttachment] | None:
        """Return the volumes of a server; None: Compute says that there is no such server.

        Nova leaves out volumes without the id of an attachment, which a server has had since
        before Nova 17; find_server() has these as well.

        :raises Failure: that cannot be determined
        """
        body = self._find(f"/servers/{_quoted(server_id)}/os-volume_attachments")
        if body is None:
            return None
        return [
            VolumeAttachment(_field(item, "attachment_id"), _field(item, "volumeId"))
            for item in _field(body, "volumeAttachments")
        ]

    def detach(self, server_id: str, volume_id: str) -> None:
        """Have Compute detach a volume from a server, which it does after its answer.

        :raises Failure: it refuses to, or that cannot be determined
        """
        self._count()
        path = f"/servers/{_quoted(server_id)}/os-volume_attachments/{_quoted(volume_id)}"
        with _no_answer("asked"):
            answer = send(self._adapter, "DELETE", path)
        if answer.status_code != ACCEPTED:
            text = answer.content[:_SHOWN_BYTES].decode(errors="replace")
            reason = f"Compute answers DELETE {path} with status {answer.status_code}: {text}"
            raise Failure(reason, is_final=False)

    def _get(self, path: str) -> Any:
        body = self._find(path)
        if body is None:
            raise Failure(_NOT_COMPUTE)
        return body

    def _find(self, path: str) -> Any:
        """Return the body of a response; None if Compute has no such object."""
        self._count()
        with _no_answer("asked"):
            answer = get(self._adapter, path)
        status: int = answer.status_code
        if status not in {OK, NOT_FOUND}:
            reason = _REFUSALS.get(status, f"Compute answers GET {path} with status {status}.")
            raise Failure(reason, is_final=status in _REFUSALS)
        body = _parse(answer.content)
        if status == OK:
            return body
        _field(body, "itemNotFound")  # A 404 may come from another server than Nova.
        return None

    def _count(self) -> None:
        if self._requests >= CONF.nova.audit_requests:
            raise Failure(
                f"Compute was sent {self._requests} requests, the limit of [nova]audit_requests."
            )
        if time.monotonic() > self._deadline:
            raise Failure(
                f"The comparison with Compute takes longer than {CONF.nova.audit_timeout} "
                "seconds, the limit of [nova]audit_timeout."
            )
        self._requests += 1


class EventSender:
    """Sends external events about servers, each in one request."""

    def __init__(self, plugin: Any) -> None:
        self._adapter = connect(plugin)
        self._adapter.endpoint_override = CONF.nova.endpoint_override

    def send(self, server_id: str, name: str, tag: str) -> None:
        """Send one event; Compute carries it out after its answer.

        :raises EventRefused: Compute cannot deliver it to this server
        :raises Failure: it has to be sent again; final: other events would fail as well
        """
        event = {"name": name, "server_uuid": server_id, "tag": tag, "status": "completed"}
        with _no_answer("reached"):
            answer = send(
                self._adapter,
                "POST",
                "/os-server-external-events",
                json={"events": [event]},
                microversion=REIMAGED_MICROVERSION if name == REIMAGED else EVENTS_MICROVERSION,
            )
        _check_event(answer.status_code, answer.content, event)


def _check_event(status: int, content: bytes, event: Mapping[str, str]) -> None:
    """Check that Compute has accepted an event; raises as EventSender.send()."""
    if status in _EVENT_REFUSALS:
        raise Failure(_EVENT_REFUSALS[status])
    if status not in {OK, MULTI_STATUS, NOT_FOUND}:
        raise Failure(f"Compute answers an event with status {status}.", is_final=False)
    body = _parse(content)
    if status == NOT_FOUND:  # Compute before 2.51 was new says so if it accepts no event.
        _field(body, "itemNotFound")
        raise EventRefused(_FINAL_CODES[NOT_FOUND])
    code = _find_code(_field(body, "events"), event)
    if code in _FINAL_CODES:
        raise EventRefused(_FINAL_CODES[code])
    if code != OK:
        raise Failure(f"Compute answers an event with code {code}.", is_final=False)


def _find_code(events: Any, sent: Mapping[str, str]) -> int:
    """Return what Compute says of the event that was sent."""
    for event in events if isinstance(events, list) else ():
        if _field(event, "server_uuid") == sent["server_uuid"]:
            code: Any = _field(event, "code")
            if isinstance(code, int):
                return code
    raise Failure(_NOT_COMPUTE)


@contextlib.contextmanager
def _no_answer(verb: str) -> Iterator[None]:
    """Raise Failure where there is no response; ``verb`` is what Compute cannot be."""
    try:
        yield
    except auth_exceptions.ConnectTimeout as error:
        raise Failure("Compute takes longer to answer than [nova] allows it to.") from error
    except (auth_exceptions.ClientException, OSError) as error:
        raise Failure(f"Compute cannot be {verb}: {error}") from error


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Failure(_NOT_COMPUTE) from None


def _field(body: Any, name: str) -> Any:
    try:
        return body[name]
    except (KeyError, TypeError):
        raise Failure(_NOT_COMPUTE) from None


def _parse_server(body: Any) -> Server:
    server_id, status = _field(body, "id"), _field(body, "status")
    if status == _CELL_DOWN and _VOLUMES not in body:
        return Server(server_id, None, None, frozenset(), is_readable=False, is_busy=False)
    return Server(
        server_id,
        body.get(_HOST),
        frozenset(_host_names(body)) if _HOST in body else None,
        frozenset(_field(volume, "id") for volume in _field(body, _VOLUMES)),
        is_readable=True,
        is_busy=_field(body, "OS-EXT-STS:task_state") is not None or status == _BUILDING,
    )


def _host_names(body: Mapping[str, Any]) -> Iterator[str]:
    yield from (body[name] for name in _HOST_NAMES if body.get(name))
    # Nova's driver of Ironic names the address of the server.
    for addresses in body.get("addresses", {}).values():
        yield from (_field(address, "addr") for address in addresses)
