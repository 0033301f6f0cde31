# SPDX-License-Identifier: Apache-2.0
"""The base of the calls during which API and managers are killed.

Each call has a volume, a server and a host of its own.  After a lost response a client repeats the
call, a POST with the same idempotency key.
"""

from collections.abc import Iterable
from http import client as http
from pathlib import Path
from typing import Any, ClassVar
import uuid

from attachd import exception
from attachd.db.attachments import attachment_store
from attachd.db.row_types import AttachmentRow, VolumeRow
from attachd.db.volumes import volume_store
from attachd.states import VolumeState
from attachd.tests.crash import client
from attachd.tests.crash.deployment import CrashDeployment
from attachd.tests.fixtures.http_client import Request, Response
from attachd.tests.wait import wait_for, wait_until

Row = dict[str, Any]

_CREATED = http.ACCEPTED
_LATER = frozenset(
    {
        client.NO_RESPONSE,
        http.CONFLICT,
        http.SERVICE_UNAVAILABLE,
        http.GATEWAY_TIMEOUT,
        http.INTERNAL_SERVER_ERROR,
    }
)
"""What makes a client wait a moment and ask again."""


class Call:
    """One call; a new one for each run.

    :cvar ENDS: what the repeated call may be answered, when it comes to an end
    """

    ENDS: ClassVar[frozenset[int]] = frozenset({http.OK})

    def __init__(self, deployment: CrashDeployment) -> None:
        self.deployment = deployment
        self.volume = ""
        self.attachment = ""
        self.server = str(uuid.uuid4())
        self.key = str(uuid.uuid4())
        name = f"host-{uuid.uuid4().hex[:8]}"
        self.connector = {
            "host": name,
            "ip": "127.0.0.1",
            "initiator": f"iqn.2026-01.internal.attachd.test:{name}",
            "multipath": False,
        }

    def prepare(self) -> None:
        """Come to where the call is made."""
        self.volume = self._new_volume()

    def request(self) -> Request:
        """Return the call."""
        raise NotImplementedError

    def wrong(self) -> Iterable[str]:
        """Return sentences about wrong results of the completed call."""
        raise NotImplementedError

    def repeat(self) -> Response:
        """Make the call again, until it comes to an end."""
        request = self.request()
        answer = wait_for(
            lambda: self.deployment.client.start(request).wait(),
            lambda answer: answer.status not in _LATER - self.ENDS,
            f"{request}",
        )
        assert answer.status in self.ENDS, (request, answer)
        return answer

    def clean(self) -> None:
        """Remove what is left of it, through the API."""
        for row in self.rows():
            if row["kind"] in {"attachment", "legacy"}:
                self._delete_attachment(row["id"])
        for row in self.rows():
            if row["kind"] == "connection":
                self._act("os-terminate_connection", {"connector": row["connector"]})
        if self.rows():
            self._act("os-unreserve")
        if self.volume and self._volume_row() is not None:
            self._request_json("DELETE", f"/volumes/{self.volume}")

    def rows(self) -> list[AttachmentRow]:
        """Return the rows of the volume's attachments."""
        return attachment_store.list_of_volumes([self.volume])

    def _volume_row(self) -> VolumeRow | None:
        try:
            return volume_store.get(self.volume, None)
        except exception.VolumeNotFound:
            return None

    def _volumes_dir(self) -> Path:
        """Return the directory of the volumes' files."""
        return Path(self.deployment.tgtd.options["tgt_volumes_dir"])

    def _states(self) -> list[tuple[str, str]]:
        return sorted((row["kind"], row["state"]) for row in self.rows())

    def _differs(self, what: str, wanted: object, found: object) -> Iterable[str]:
        if wanted != found:
            yield f"{what}: {found}, not {wanted}"

    def _status_differs(self, wanted: str) -> Iterable[str]:
        row = self._volume_row()
        return self._differs("volume", wanted, row and row["status"])

    def _request_json(self, method: str, path: str, body: Any = None) -> Any:
        return self.deployment.client.request_json(method, path, body)

    def _delete_attachment(self, attachment_id: str) -> None:
        """Delete one; a manager may have yet to notice that its backend is back."""
        path = f"/attachments/{attachment_id}"
        answer = wait_for(
            lambda: self.deployment.client.request("DELETE", path),
            lambda answer: answer.status != http.SERVICE_UNAVAILABLE,
            f"DELETE {path}",
        )
        assert answer.status in {http.OK, http.NOT_FOUND}, (path, answer)

    def _act(self, action: str, arguments: Any = None) -> Any:
        return self._request_json("POST", f"/volumes/{self.volume}/action", {action: arguments})

    def _action(self, action: str, arguments: Any = None) -> Request:
        return self._post(f"/volumes/{self.volume}/action", {action: arguments})

    def _post(self, path: str, body: Any) -> Request:
        return Request("POST", path, body, {"Idempotency-Key": f'"{self.key}"'})

    def _new_volume(self, **values: Any) -> str:
        body = {"volume": {"size": 1, **values}}

        def create() -> Response:
            answer = self.deployment.client.request("POST", "/volumes", body)
            # After a restart of tgtd its manager may report that it is down, once.
            assert answer.status == _CREATED or "down" in f"{answer.body}", answer
            return answer

        answer = wait_for(create, lambda answer: answer.status == _CREATED)
        made = str(answer.body["volume"]["id"])
        self._wait_until_ready(made)
        return made

    def _wait_until_ready(self, volume_id: str) -> None:
        wait_until(
            lambda: volume_store.get(volume_id, None)["state"] == VolumeState.READY,
            lambda: volume_store.get(volume_id, None),
            interval=0.01,
        )

    def _reserve(self, server: str = "") -> str:
        wanted = {"volume_uuid": self.volume, "instance_uuid": server or self.server}
        return str(
            self._request_json("POST", "/attachments", {"attachment": wanted})["attachment"]["id"]
        )

    def _connect(self, attachment: str, connector: dict[str, Any]) -> None:
        body = {"attachment": {"connector": connector}}
        self._request_json("PUT", f"/attachments/{attachment}", body)

    def _complete(self, attachment: str) -> None:
        self._request_json("POST", f"/attachments/{attachment}/action", {"os-complete": None})

    def _attach(self) -> str:
        made = self._reserve()
        self._connect(made, self.connector)
        self._complete(made)
        return made
