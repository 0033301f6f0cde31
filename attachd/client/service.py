# SPDX-License-Identifier: Apache-2.0
"""The Block Storage API as the client calls it, through openstacksdk.

Errors are those of openstacksdk and keystoneauth.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import functools
import http
import re
from typing import Any, Final
from urllib import parse

from keystoneauth1 import exceptions as transport
from openstack import connection as sdk
from openstack import exceptions
from oslo_utils import uuidutils

from attachd.agent.connectors.base import ConnectorProperties

MICROVERSION: Final = "3.54"
"""The oldest with all fields of attachments that the client uses; the mode came last."""

# attachd answers with the host of an attachment; other services read their own part only.
_OWN: Final = {"OpenStack-API-Version": f"volume {MICROVERSION}, attachd 1.0"}
_FENCING: Final = {"OpenStack-API-Version": f"volume {MICROVERSION}, attachd 1.1"}
_KEY: Final = "Idempotency-Key"
_REPLAYED: Final = "Idempotent-Replayed"

# Statuses that do not say whether the request, or a copy of it, has been or will be executed.
_UNDECIDED: Final = {
    http.HTTPStatus.UNAUTHORIZED,
    http.HTTPStatus.REQUEST_TIMEOUT,
    http.HTTPStatus.CONFLICT,
    http.HTTPStatus.TOO_EARLY,
    http.HTTPStatus.TOO_MANY_REQUESTS,
}

FAILURES: Final = (exceptions.SDKException, transport.ClientException)
"""Errors of a call."""


_UNREACHABLE: Final = re.compile(
    r"^Unable to (?:establish connection to|find a version discovery document at) ([^\s,]+?)[:,] "
)
_SYSTEM_ERROR: Final = re.compile(r"\[Errno -?\d+\] ([\w ]+)")


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Let errors of openstacksdk and keystoneauth have the message of the service alone."""
    try:
        yield
    except exceptions.HttpException as error:
        if error.url:
            url = error.response.url if error.response is not None else "its URL"
            details = error.details or f"it gives no reason ({url})"
            status = error.status_code or http.HTTPStatus.INTERNAL_SERVER_ERROR
            failed = status >= http.HTTPStatus.INTERNAL_SERVER_ERROR
            error.message = f"The service failed ({status}): {details}" if failed else details
            error.url = None
        raise
    except (transport.ConnectFailure, transport.DiscoveryFailure) as error:
        if found := _UNREACHABLE.search(f"{error}"):
            reason = _SYSTEM_ERROR.search(f"{error}")
            text = (
                f"No Block Storage API answers at {found[1]}"
                f"{f' ({reason[1]})' if reason else ''}. Check that it runs, and the cloud "
                "(--os-cloud, OS_CLOUD) or the endpoint (--os-endpoint, OS_ENDPOINT)."
            )
            error.message, error.args = text, (text,)
        raise


class Sender:
    """Sends requests to the Block Storage API; each call raises one of FAILURES."""

    def __init__(self, connection: sdk.Connection) -> None:
        self._connection = connection

    @functools.cached_property
    def proxy(self) -> Any:
        """The proxy of the SDK.

        To find it takes a token and the versions, which can fail as any request.
        """
        with readable_errors():
            return self._connection.block_storage

    def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        """Send a request; return the body of the response, or None.

        :param options: further ones of keystoneauth, such as ``json`` and ``timeout``
        """
        proxy = self.proxy
        with readable_errors():
            answer = proxy.request(
                path, method, headers=dict(headers or {}), raise_exc=False, **options
            )
            exceptions.raise_from_response(answer)
        return answer.json() if answer.content else None


class ReservationRefused(Exception):
    """There is no attachment for an idempotency key, and there will be none.

    :ivar cause: the service's error
    """

    def __init__(self, cause: exceptions.HttpException) -> None:
        super().__init__(f"{cause}")
        self.cause = cause


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume.

    :ivar name: "" if it is not known
    :ivar guard: fields for os-brick's guard of shared connections
    :ivar size_gib: in GiB (2**30 bytes)
    :ivar hosts: names of hosts by the id of the attachment, as far as the caller may see them
    """

    id: str
    guard: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hosts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    name: str = ""
    size_gib: int = 0


@dataclasses.dataclass(frozen=True)
class RemoteAttachment:
    """An attachment, as the service has it.

    :ivar host: None: none, or the service does not show it
    :ivar connection_info: empty until it is connected
    """

    id: str
    volume_id: str
    status: str
    mode: str
    host: str | None
    connection_info: dict[str, Any]

    @classmethod
    def from_body(cls, shown: Mapping[str, Any]) -> "RemoteAttachment":
        """Build it from the API's answer."""
        return cls(
            id=shown["id"],
            volume_id=shown["volume_id"],
            status=shown["status"],
            mode="ro" if shown.get("attach_mode") == "ro" else "rw",
            host=shown.get("attached_host"),
            connection_info=shown.get("connection_info") or {},
        )


class Service:
    """The Block Storage service of one connection."""

    def __init__(self, connection: sdk.Connection) -> None:
        self._sender = Sender(connection)

    @functools.cached_property
    def cloud(self) -> str:
        """The service's URL, which identifies it in the journal."""
        return str(self._sender.proxy.get_endpoint())

    def check(self) -> None:
        """Check that the service answers this user."""
        self._ask("GET", "/attachments?limit=1")

    def find(self, volume: str) -> Volume:
        """Return the volume of a name or an id.

        :raises NotFoundException: there is none
        :raises DuplicateResource: several have the name; the message has their ids
        """
        with readable_errors():
            return self._find(volume)

    def _find(self, volume: str) -> Volume:
        proxy = self._sender.proxy
        if uuidutils.is_uuid_like(volume):
            try:
                return self._volume(proxy.get_volume(volume))
            except exceptions.NotFoundException:
                pass  # Names may look like ids.
        found = [match for match in proxy.volumes(name=volume) if match.name == volume]
        if not found:
            raise exceptions.NotFoundException(f"There is no volume {volume}.")
        if len(found) > 1:
            ids = ", ".join(sorted(match.id for match in found))
            raise exceptions.DuplicateResource(
                f"{len(found)} volumes have the name {volume}; say which one by its id: {ids}"
            )
        return self._volume(found[0])

    @staticmethod
    def _volume(found: Any) -> Volume:
        # Services that have no ids of backends do not know of shared targets either.
        names = ("shared_targets", "service_uuid") if found.service_uuid else ()
        guard = {name: getattr(found, name) for name in names}
        hosts = {
            attachment["attachment_id"]: attachment["host_name"]
            for attachment in found.attachments or ()
            if attachment.get("host_name")
        }
        return Volume(found.id, guard, hosts, found.name or "", int(found.size or 0))

    def reserve(self, volume_id: str, mode: str, key: str) -> str:
        """Reserve a volume; the same idempotency key returns the same attachment.

        :returns: the id of the attachment
        :raises ReservationRefused: there is none for this key, and there will be none
        """
        body = {"attachment": {"volume_uuid": volume_id, "mode": mode}}
        try:
            made = self._ask("POST", "/attachments", body, {_KEY: key})
        except exceptions.HttpException as error:
            if _is_final(error):
                raise ReservationRefused(error) from error
            raise
        return str(made["attachment"]["id"])

    def connect(self, attachment_id: str, connector: ConnectorProperties) -> dict[str, Any]:
        """Connect this host; a repeated call returns the same connection."""
        body = {"attachment": {"connector": connector}}
        answer = self._ask("PUT", f"/attachments/{attachment_id}", body)
        return dict(answer["attachment"]["connection_info"])

    def complete(self, attachment_id: str) -> None:
        """Report that the host uses the volume; may be repeated."""
        self._ask("POST", f"/attachments/{attachment_id}/action", {"os-complete": {}})

    def delete(self, attachment_id: str) -> None:
        """Delete an attachment, unless it is deleted already."""
        try:
            self._ask("DELETE", f"/attachments/{attachment_id}")
        except exceptions.NotFoundException:
            return

    def attachment(self, attachment_id: str) -> RemoteAttachment | None:
        """Return an attachment; None: it is deleted."""
        try:
            answer = self._ask("GET", f"/attachments/{attachment_id}", headers=_OWN)
        except exceptions.NotFoundException:
            return None
        return RemoteAttachment.from_body(answer["attachment"])

    def attachments(self, volume: Volume) -> list[RemoteAttachment]:
        """Return the attachments of a volume."""
        path = f"/attachments/detail?volume_id={volume.id}"
        found = map(
            RemoteAttachment.from_body, self._ask("GET", path, headers=_OWN)["attachments"]
        )
        return [
            match if match.host else dataclasses.replace(match, host=volume.hosts.get(match.id))
            for match in found
        ]

    def has_volume(self, volume_id: str) -> bool:
        """Return whether there is a volume, as far as the user may see it."""
        try:
            self._ask("GET", f"/volumes/{volume_id}")
        except exceptions.NotFoundException:
            return False
        return True

    def host_attachments(self, host: str) -> list[str]:
        """Return the ids of the attachments that may give a host access, of all projects.

        :raises NotFoundException: it has none, and is not known otherwise
        :raises ForbiddenException: the user may not see it
        """
        answer = self._ask("GET", f"/hosts/{parse.quote(host, safe='')}", headers=_FENCING)
        return [*answer["host"]["attachment_ids"]]

    def check_hosts(self) -> None:
        """Check that the service has hosts, and that this user may see them."""
        self._ask("GET", "/hosts", headers=_FENCING)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        return self._sender.send(method, path, headers, json=body, microversion=MICROVERSION)


def _is_final(error: exceptions.HttpException) -> bool:
    """Return whether each repetition of the request would be refused likewise."""
    if error.response is not None and _REPLAYED in error.response.headers:
        return True
    status = error.status_code or 0
    refused = http.HTTPStatus.BAD_REQUEST <= status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    return refused and status not in _UNDECIDED
