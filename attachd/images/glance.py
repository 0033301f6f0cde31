# SPDX-License-Identifier: Apache-2.0
"""HTTP requests to the Image API.

The API asks with the token of its caller, who sees what the Image service shows to them; a caller
without a token sees the images for all and those of the own project.  Managers
work with the credentials in [glance], since a token does not last as long as a large image, or a
restart.  The URL is that of [glance], else that of the catalogue of these credentials.

Source: the Image API, 2.7 and later, "Show image", "List images", "Download binary image data".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import json
import re
import time
from typing import Any, Final, Self, TypeVar
import urllib.parse

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import token_endpoint
from oslo_log import log
import requests
import urllib3

from attachd import exception, service_session
from attachd.conf import CONF
from attachd.conf.glance import GROUP

LOG = log.getLogger(__name__)

CHUNK: Final = 2**20
"""Bytes of an image that are in memory at a time."""

MIN_BYTES: Final = 64 * 1024
"""Bytes of an image that the Image service has to send in [glance]read_timeout."""

_LONGEST_CHUNK: Final = 1.0
"""Seconds in which a chunk is collected, so that a slow transfer can be ended."""

ACTIVE: Final = "active"
SIGNATURE: Final = "img_signature"
"""The property of an image that has a signature."""

_SERVICE: Final = "image"
_OK: Final = 200
_CREATED: Final = 201
_NO_CONTENT: Final = 204
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_GONE: Final = 410
_TOO_LARGE: Final = 413
_UNSUPPORTED: Final = 415
_OF_PROXY: Final = frozenset({502, 504})
"""Answers of a proxy that has none of the Image service."""
_SHOWN: Final = 300
"""Characters of a refusal that are shown."""

_FOR_ALL: Final = frozenset({"public", "community"})
"""The visibility of images that each project may use."""

_MAX_NAMED: Final = 2
"""Images of one name that are listed: a second one makes the name ambiguous."""

BASE: Final = frozenset(
    {
        *("id", "name", "status", "visibility", "protected", "owner", "tags", "os_hidden"),
        *("size", "virtual_size", "min_disk", "min_ram", "disk_format", "container_format"),
        *("checksum", "os_hash_algo", "os_hash_value", "created_at", "updated_at"),
        *("file", "self", "schema", "locations", "direct_url", "stores"),
    }
)
"""The attributes of each image; others are properties that users have given it.

Source: the Image API, "Image schema".
"""

_KEPT: Final = ("checksum", "container_format", "disk_format", "min_disk", "min_ram", "size")
"""The attributes that a volume keeps, as in the Block Storage API."""

_NO_CREDENTIALS: Final = (
    "This service has no images: its operator has set no credentials in [glance]."
)


@dataclasses.dataclass(frozen=True)
class Image:
    """What the Image service says of an image.

    :ivar size: bytes of its data; 0: it has none
    :ivar virtual_size: bytes of the disk that it holds; None: the service does not know it
    :ivar min_disk: GiB
    :ivar hash_algorithm: of hash_value, as hashlib names it; None: there is only the checksum
    :ivar block_device_mapping: a property, as its owner wrote it, see :meth:`find_snapshot`
    :ivar metadata: what a volume keeps of it: texts, by names
    :ivar locations: URLs of where its data is, if the service shows them
    :ivar updated_at: when it was changed, as the service writes it; None: not known
    :ivar owner: the id of its project
    :ivar visibility: public, community, shared or private
    """

    id: str
    status: str
    size: int
    virtual_size: int | None
    min_disk: int
    disk_format: str | None
    container_format: str | None
    checksum: str | None
    hash_algorithm: str | None
    hash_value: str | None
    is_signed: bool
    block_device_mapping: Any
    metadata: Mapping[str, str]
    locations: Sequence[str] = ()
    updated_at: str | None = None
    owner: str | None = None
    visibility: str | None = None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Return the image of a body.

        :raises LookupError, TypeError, AttributeError: it is none
        """
        return cls(
            id=str(body["id"]),
            status=str(body["status"]),
            size=_number(body, "size"),
            virtual_size=_number(body, "virtual_size") or None,
            min_disk=_number(body, "min_disk"),
            disk_format=_text(body, "disk_format"),
            container_format=_text(body, "container_format"),
            checksum=_text(body, "checksum"),
            hash_algorithm=_text(body, "os_hash_algo"),
            hash_value=_text(body, "os_hash_value"),
            is_signed=SIGNATURE in body,
            block_device_mapping=body.get("block_device_mapping"),
            metadata=_metadata(body),
            locations=_find_locations(body),
            updated_at=_text(body, "updated_at"),
            owner=_text(body, "owner"),
            visibility=_text(body, "visibility"),
        )

    def find_snapshot(self) -> str | None:
        """Return the snapshot from which the server of the image boots; None: there is none.

        Compute has made such an image of a server whose root disk is a volume, without data.

        :raises ImageUnacceptable: the property that names it cannot be read

        Source: Nova, "Create Image" of a server whose root disk is a volume.
        """
        mapping = self.block_device_mapping or "[]"
        try:
            devices = json.loads(mapping) if isinstance(mapping, str) else mapping
            for device in devices:
                if device.get("source_type") == "snapshot" and device.get("boot_index") == 0:
                    return str(device["snapshot_id"])
        except _UNREADABLE as error:
            reason = "its property block_device_mapping is not as Compute writes it."
            raise exception.ImageUnacceptable(image_id=self.id, reason=reason) from error
        return None


_Parsed = TypeVar("_Parsed")
_UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading JSON of another form than expected raises."""


def _number(body: Mapping[str, Any], name: str) -> int:
    """Return an attribute that is a number, 0 if there is none; raises TypeError: it is none."""
    value = body.get(name) or 0
    if not isinstance(value, int):
        raise TypeError(name)
    return value


def _text(body: Mapping[str, Any], name: str) -> str | None:
    """Return an attribute that is a text, if there is one; raises TypeError: it is none."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(name)
    return value


def _find_locations(body: Mapping[str, Any]) -> list[str]:
    urls = [location["url"] for location in body.get("locations") or ()]
    return [str(url) for url in (body.get("direct_url"), *urls) if url]


def _metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of an image, and its attributes that a volume keeps."""
    found = {key: value for key, value in body.items() if key not in BASE}
    found |= {key: body.get(key) for key in _KEPT}
    found |= {"image_id": body["id"], "image_name": body.get("name") or None}
    return {key: str(value) for key, value in found.items() if value is not None}


def is_configured() -> bool:
    """Return whether this service has images."""
    return service_session.has_credentials(GROUP)


class ImageApi:
    """The Image service over HTTP; an object is used by one thread.

    :ivar url: without the version
    :ivar project_id: that has the images, beside those for all; None: all images are shown
    """

    def __init__(self, plugin: Any, url: str, project_id: str | None = None) -> None:
        self.url = url
        self.project_id = project_id
        self._adapter = service_session.connect(GROUP, plugin, _SERVICE, endpoint_override=url)

    @classmethod
    def of_service(cls) -> Self:
        """Return the interface with the credentials of this service.

        :raises BadRequest: it has none
        :raises ConfigurationError: they are not complete
        :raises Unavailable: the Image service cannot be found
        """
        if not is_configured():
            raise exception.BadRequest(reason=_NO_CREDENTIALS)
        plugin = service_session.load_credentials(GROUP, "sees the images of all projects")
        return cls(plugin, _find_url(plugin))

    @classmethod
    def of_caller(cls, token: str | None, project_id: str | None) -> Self:
        """Return the interface with the token of a caller.

        A caller without a token is one that the Image service does not know: the interface has the
        credentials of this service, and shows what a project may use.

        :param project_id: of the caller; None: the caller may use all images
        :raises: as :meth:`of_service`
        """
        by_service = cls.of_service()
        if token:
            return cls(token_endpoint.Token(by_service.url, token), by_service.url)
        by_service.project_id = project_id
        return by_service

    def get(self, image_id: str) -> Image:
        """Return an image.

        :raises ImageNotFound: the Image service shows none, or the project may not use it
        :raises Unavailable: it does not answer
        """
        answer = self._send("GET", f"/images/{urllib.parse.quote(image_id, safe='')}")
        image = _parse(answer, image_id, Image.parse)
        if not self._may_use(image):
            raise exception.ImageNotFound(image_id=image_id)
        return image

    def _may_use(self, image: Image) -> bool:
        return self.project_id in {None, image.owner} or image.visibility in _FOR_ALL

    def list_locations(self, image: Image) -> Sequence[str]:
        """Return the URLs of where the data of an image is; none: the service shows none.

        :raises Unavailable: the Image service does not answer

        Source: the Image API, 2.17, "Get locations"; its policy lets services read them.
        """
        if image.locations:
            return image.locations
        path = f"/images/{urllib.parse.quote(image.id, safe='')}/locations"
        answer = self._send("GET", path)
        if answer.status_code != _OK:
            return ()
        try:
            return _find_locations({"locations": json.loads(answer.content)})
        except _UNREADABLE:
            return ()

    def find(self, name: str) -> list[Image]:
        """Return the images of a name, two at most.

        :raises Unavailable: the Image service does not answer
        """
        found: dict[str, Image] = {}
        for scope in self._scopes():
            query = urllib.parse.urlencode({"name": name, "limit": _MAX_NAMED, **scope})
            images = _parse(self._send("GET", f"/images?{query}"), name, _parse_list)
            found |= {image.id: image for image in images if self._may_use(image)}
        return list(found.values())[:_MAX_NAMED]

    def _scopes(self) -> list[dict[str, str]]:
        """Return the filters of lists with what is found by a name.

        Images that the community may use are found by id, as by a user of the Image service.
        """
        if self.project_id is None:
            return [{}]
        return [{"owner": self.project_id, "visibility": "all"}, {"visibility": "public"}]

    @contextlib.contextmanager
    def download(self, image_id: str) -> Iterator[Iterator[bytes]]:
        """Read the data of an image in chunks of :data:`CHUNK` at most, one a second at least.

        :raises ImageNotFound: it is gone
        :raises Unavailable: the Image service does not answer, stops in the middle, or is too slow
        """
        path = f"/images/{urllib.parse.quote(image_id, safe='')}/file"
        # A compressed transfer could become larger than the image.
        headers = {"Accept": "application/octet-stream", "Accept-Encoding": "identity"}
        answer = self._send("GET", path, stream=True, headers=headers)
        with contextlib.closing(answer):
            if answer.status_code == _NO_CONTENT:
                yield iter(())
                return
            _check_status(answer, image_id)
            yield _read_chunks(answer, image_id)

    def create(self, image_id: str, fields: Mapping[str, Any]) -> None:
        """Make an image without data.

        :param fields: of the Image API, texts and booleans; ``owner`` if this service makes it for
            a caller without a token
        :raises Forbidden: the caller may not, for example make it public
        :raises Conflict: the id is taken
        :raises BadRequest: the Image service refuses the fields
        :raises ImageRequestUnanswered: the image may have been made, or may be made later
        :raises Unavailable: it does not answer, and there is no image
        """
        answer = self._send("POST", "/images", json={**fields, "id": image_id})
        if answer.status_code == _FORBIDDEN and "owner" in fields:
            raise exception.Forbidden(
                "The Image service does not let this service make an image of project "
                f"{fields['owner']}: {_read_reason(answer)} Its user in [glance] needs the role "
                "admin."
            )
        if answer.status_code in _OF_PROXY:
            raise _unanswered(f"it answers with status {answer.status_code}.")
        if answer.status_code != _CREATED:
            raise _refusal(answer)

    def upload(self, image_id: str, chunks: Iterator[bytes], size: int) -> None:
        """Send the data of an image.

        :param size: of all chunks: not each server of the Image service takes data without it
        :raises ImageNotFound: it is gone
        :raises ImageUnacceptable: the Image service refuses the data
        :raises Unavailable: it does not answer, or stops in the middle
        """
        seconds = CONF.glance.read_timeout
        answer = self._send(
            "PUT",
            f"/images/{urllib.parse.quote(image_id, safe='')}/file",
            data=_SizedData(chunks, size),
            headers={"Content-Type": "application/octet-stream"},
            timeout=(seconds, seconds),  # The first one counts for sending, too.
            allow_reauth=False,  # The data has been sent.
        )
        if answer.status_code in {_NOT_FOUND, _GONE}:
            raise exception.ImageNotFound(image_id=image_id)
        if answer.status_code in {_TOO_LARGE, _BAD_REQUEST, _UNSUPPORTED}:
            reason = f"the Image service refuses the data: {_read_reason(answer)}"
            raise exception.ImageUnacceptable(image_id=image_id, reason=reason)
        if answer.status_code == _UNAUTHORIZED:
            self._adapter.invalidate()  # The next attempt gets a new token.
        if answer.status_code != _NO_CONTENT:
            raise _unavailable(f"it answers with status {answer.status_code}.")

    def delete(self, image_id: str) -> None:
        """Delete an image, also a protected one; none is a success.

        :raises Forbidden, Conflict, BadRequest: the Image service refuses
        :raises Unavailable: it does not answer
        """
        path = f"/images/{urllib.parse.quote(image_id, safe='')}"
        answer = self._send("DELETE", path)
        if answer.status_code == _FORBIDDEN:
            change = [{"op": "replace", "path": "/protected", "value": False}]
            headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
            self._send("PATCH", path, data=json.dumps(change), headers=headers)
            answer = self._send("DELETE", path)
        if answer.status_code not in {_NO_CONTENT, _NOT_FOUND}:
            raise _refusal(answer)

    def delete_without_data(self, image_id: str) -> bool:
        """Delete an image, unless it has all its data; return whether there is none.

        :raises: as :meth:`get`, except ImageNotFound, and :meth:`delete`
        """
        try:
            if self.get(image_id).status == ACTIVE:
                return False
        except exception.ImageNotFound:
            return True
        self.delete(image_id)
        return True

    def _send(self, method: str, path: str, **options: Any) -> Any:
        try:
            return service_session.send(self._adapter, GROUP, method, f"/v2{path}", **options)
        except (auth_exceptions.ClientException, OSError) as error:
            LOG.warning("The Image service does not answer %s %s: %s", method, path, error)
            may_arrive = method == "POST" and not _is_unsent(error)
            make = _unanswered if may_arrive else _unavailable
            raise make(_explain(error)) from error


def _is_unsent(error: Exception) -> bool:
    """Return whether a request failed because there was no connection."""
    cause = error.__context__
    arguments = cause.args if isinstance(cause, requests.ConnectionError) else ()
    return any(
        isinstance(getattr(it, "reason", None), urllib3.exceptions.NewConnectionError)
        for it in arguments
    )


def _parse(answer: Any, image_id: str, parse: Callable[[Any], _Parsed]) -> _Parsed:
    """Return what an answer has: an image, or a list of them."""
    _check_status(answer, image_id)
    try:
        return parse(json.loads(answer.content))
    except _UNREADABLE:
        raise _unavailable(
            "the answer is not one of the Image service. Check endpoint_override in [glance]."
        ) from None


def _parse_list(body: Mapping[str, Any]) -> list[Image]:
    return [Image.parse(item) for item in body["images"]]


def _find_url(plugin: Any) -> str:
    """Return the URL of the Image service without its version."""
    url: str | None = CONF.glance.endpoint_override
    if url is None:
        adapter = service_session.connect(GROUP, plugin, _SERVICE)
        try:
            url = adapter.get_endpoint(skip_discovery=True)
        except (auth_exceptions.ClientException, OSError) as error:
            LOG.warning("The Image service cannot be found: %s", error)
            raise _unavailable(_explain(error)) from error
    if not url:
        raise _unavailable("the service catalogue has no endpoint of it. Check [glance].")
    return url.rstrip("/").removesuffix("/v2")


def _check_status(answer: Any, image_id: str) -> None:
    status = answer.status_code
    if status == _OK:
        return
    if status in {_NOT_FOUND, _FORBIDDEN}:
        raise exception.ImageNotFound(image_id=image_id)
    if status == _UNAUTHORIZED:
        raise _unavailable("it does not accept the token. Check [glance].")
    raise _unavailable(f"it answers with status {status}.")


class _SizedData:
    """The body of an upload, as requests takes one whose length is known."""

    def __init__(self, chunks: Iterator[bytes], size: int) -> None:
        self._chunks = chunks
        self.len = size

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks


def _refusal(answer: Any) -> exception.AttachdError:
    """Return the error for a request that the Image service refuses."""
    reason = f"The Image service refuses this: {_read_reason(answer)}"
    if answer.status_code == _FORBIDDEN:
        return exception.Forbidden(reason)
    if answer.status_code == _CONFLICT:
        return exception.Conflict(reason=reason)
    if answer.status_code in {_BAD_REQUEST, _TOO_LARGE}:
        return exception.BadRequest(reason=reason)
    return _unavailable(f"it answers with status {answer.status_code}.")


def _read_reason(answer: Any) -> str:
    """Return the text of an error, which the Image service sends as a page."""
    text = answer.content[: 4 * _SHOWN].decode(errors="replace")
    return " ".join(re.sub(r"<title>.*?</title>|<[^>]*>", " ", text, flags=re.DOTALL).split())[
        :_SHOWN
    ]


def _read_chunks(answer: Any, image_id: str) -> Iterator[bytes]:
    try:
        yield from _read_body(answer.raw, image_id)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        LOG.warning("Image %s: the transfer was interrupted: %s", image_id, error)
        raise _unavailable(f"the transfer of image {image_id} was interrupted.") from error


def _read_body(body: Any, image_id: str) -> Iterator[bytes]:
    """Yield what has been received each second, and each CHUNK.

    :raises Unavailable: the Image service sends less than MIN_BYTES in [glance]read_timeout
    """
    pieces, length, started = list[bytes](), 0, time.monotonic()
    waited, received = 0.0, 0  # The time in which the caller writes does not count.
    while piece := body.read1(CHUNK - length, decode_content=False):
        now = time.monotonic()
        pieces.append(piece)
        length += len(piece)
        received += len(piece)
        if length < CHUNK and now - started < _LONGEST_CHUNK:
            continue
        waited += now - started
        yield b"".join(pieces)
        if waited >= CONF.glance.read_timeout:
            if received < MIN_BYTES:
                raise _unavailable(
                    f"it sends less than {MIN_BYTES // 1024} KiB of image "
                    f"{image_id} in {waited:.0f} seconds."
                )
            waited, received = 0.0, 0
        pieces, length, started = [], 0, time.monotonic()
    if pieces:
        yield b"".join(pieces)


def _explain(error: Exception) -> str:
    if isinstance(error, auth_exceptions.Unauthorized):
        return "Identity does not accept the credentials in [glance]."
    if isinstance(error, auth_exceptions.ConnectTimeout):
        return "it takes longer to answer than [glance] allows it to."
    if isinstance(error, auth_exceptions.CatalogException):
        return "the service catalogue has no endpoint of it. Check [glance]."
    return f"it cannot be reached ({type(error).__name__})."


def _unavailable(why: str) -> exception.ImageServiceUnavailable:
    return exception.ImageServiceUnavailable(reason=f"The Image service does not answer: {why}")


def _unanswered(why: str) -> exception.ImageRequestUnanswered:
    return exception.ImageRequestUnanswered(reason=f"The Image service does not answer: {why}")
