# SPDX-License-Identifier: Apache-2.0
"""Calls for attachments, with the state that each must reach."""

from collections.abc import Iterable
from http import client as http
import uuid

from attachd.states import AttachmentState
from attachd.tests.crash.calls import Call
from attachd.tests.fixtures.http_client import Request

ATTACHD_1_1 = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


class Reserve(Call):
    """POST /attachments without a connector."""

    def request(self) -> Request:
        """Return the call."""
        wanted = {"volume_uuid": self.volume, "instance_uuid": self.server}
        return self._post("/attachments", {"attachment": wanted})

    def wrong(self) -> Iterable[str]:
        """There is one reservation, of this server."""
        yield from self._only(AttachmentState.RESERVED)
        yield from self._status_differs("reserved")

    def _only(self, state: AttachmentState) -> Iterable[str]:
        found = [(row["state"], row["instance_uuid"]) for row in self.rows()]
        yield from self._differs("attachments", [(state, self.server)], found)


class ReserveAndConnect(Reserve):
    """POST /attachments with a connector."""

    def request(self) -> Request:
        """Return the call."""
        body = {
            "volume_uuid": self.volume,
            "instance_uuid": self.server,
            "connector": self.connector,
        }
        return self._post("/attachments", {"attachment": body})

    def wrong(self) -> Iterable[str]:
        """There is one attachment, of this server, connected."""
        yield from self._only(AttachmentState.CONNECTED)
        yield from self._status_differs("attaching")


class Connect(Reserve):
    """PUT /attachments/ID."""

    def prepare(self) -> None:
        """Reserve."""
        super().prepare()
        self.attachment = self._reserve()

    def request(self) -> Request:
        """Return the call."""
        body = {"attachment": {"connector": self.connector}}
        return Request("PUT", f"/attachments/{self.attachment}", body)

    def wrong(self) -> Iterable[str]:
        """It is connected."""
        yield from self._only(AttachmentState.CONNECTED)
        yield from self._status_differs("attaching")


class Complete(Reserve):
    """The action os-complete."""

    ENDS = frozenset({http.NO_CONTENT})

    def prepare(self) -> None:
        """Connect."""
        super().prepare()
        self.attachment = self._reserve()
        self._connect(self.attachment, self.connector)

    def request(self) -> Request:
        """Return the call."""
        return self._post(f"/attachments/{self.attachment}/action", {"os-complete": None})

    def wrong(self) -> Iterable[str]:
        """It is attached."""
        yield from self._only(AttachmentState.ATTACHED)
        yield from self._status_differs("in-use")


class Cancel(Connect):
    """DELETE /attachments/ID of a mere reservation."""

    ENDS = frozenset({http.OK, http.NOT_FOUND})

    def request(self) -> Request:
        """Return the call."""
        return Request("DELETE", f"/attachments/{self.attachment}")

    def wrong(self) -> Iterable[str]:
        """Nothing is left."""
        yield from self._differs("attachments", [], self._states())
        yield from self._status_differs("available")


class Detach(Cancel):
    """DELETE /attachments/ID of an attached one."""

    def prepare(self) -> None:
        """Attach."""
        Call.prepare(self)
        self.attachment = self._attach()


class ConnectBesideAnother(Call):
    """PUT /attachments/ID of a volume that another host uses as well."""

    def prepare(self) -> None:
        """Attach another host, with an account before ours."""
        self.volume = self._new_volume(volume_type=self.deployment.type_id("shared"))
        self.neighbour = {**self.connector, "host": "neighbour"}
        self.neighbour["initiator"] = f"iqn.2026-01.internal.attachd.test:{uuid.uuid4().hex}"
        self.other = self._reserve(str(uuid.uuid4()))
        self._connect(self.other, self.neighbour)
        self._complete(self.other)
        self.attachment = self._reserve()

    def request(self) -> Request:
        """Return the call."""
        body = {"attachment": {"connector": self.connector}}
        return Request("PUT", f"/attachments/{self.attachment}", body)

    def wrong(self) -> Iterable[str]:
        """Both have it."""
        found = {row["id"]: row["state"] for row in self.rows()}
        wanted = {self.other: "attached", self.attachment: "connected"}
        yield from self._differs("attachments", wanted, found)


class DetachBesideAnother(ConnectBesideAnother):
    """DELETE /attachments/ID, of which the other host must not notice."""

    ENDS = frozenset({http.OK, http.NOT_FOUND})

    def prepare(self) -> None:
        """Attach both, and let the one leave that came first: tgtd has to move the other."""
        super().prepare()
        self._connect(self.attachment, self.connector)
        self._complete(self.attachment)

    def request(self) -> Request:
        """Return the call."""
        return Request("DELETE", f"/attachments/{self.other}")

    def wrong(self) -> Iterable[str]:
        """The one that stays is attached."""
        found = {row["id"]: row["state"] for row in self.rows()}
        yield from self._differs("attachments", {self.attachment: "attached"}, found)
        yield from self._status_differs("in-use")


class BeginMove(ReserveAndConnect):
    """POST /attachments with move_from."""

    def prepare(self) -> None:
        """Attach another host."""
        self.volume = self._new_volume()
        self.source = self._reserve()
        old = f"old-{self.connector['host']}"
        initiator = f"iqn.2026-01.internal.attachd.test:{old}"
        self._connect(self.source, {**self.connector, "host": old, "initiator": initiator})
        self._complete(self.source)

    def request(self) -> Request:
        """Return the call."""
        body = {
            "volume_uuid": self.volume,
            "move_from": self.source,
            "connector": self.connector,
        }
        asked = self._post("/attachments", {"attachment": body})
        return asked._replace(headers={**asked.headers, **ATTACHD_1_1})

    def wrong(self) -> Iterable[str]:
        """The other one writes, and this one reads."""
        found = sorted((row["state"], row["mode"], row["move_from"]) for row in self.rows())
        wanted = [("attached", "rw", None), ("connected", "ro", self.source)]
        yield from self._differs("attachments", wanted, found)
        yield from self._status_differs("in-use")


class FinishMove(BeginMove):
    """The action finish_move."""

    def prepare(self) -> None:
        """Begin the move."""
        super().prepare()
        answer = self.deployment.client.start(super().request()).wait()
        self.attachment = answer.body["attachment"]["id"]

    def request(self) -> Request:
        """Return the call."""
        path = f"/attachments/{self.attachment}/action"
        return Request("POST", path, {"finish_move": {}}, ATTACHD_1_1)

    def wrong(self) -> Iterable[str]:
        """Only this one is left, and writes."""
        found = [(row["id"], row["state"], row["mode"], row["move_from"]) for row in self.rows()]
        wanted = [(self.attachment, "connected", "rw", None)]
        yield from self._differs("attachments", wanted, found)
        yield from self._status_differs("attaching")


def later(kind: type[Reserve]) -> type[Reserve]:
    """Return the same call with Prefer: respond-async."""

    class Later(kind):  # type: ignore[misc,valid-type]
        ENDS = kind.ENDS | {http.ACCEPTED}

        def request(self) -> Request:
            asked = super().request()
            headers = {**asked.headers, "Prefer": "respond-async"}
            return asked._replace(headers=headers)

    Later.__name__ = f"{kind.__name__}Later"
    return Later


WAITING = (
    Reserve,
    ReserveAndConnect,
    Connect,
    Complete,
    Cancel,
    Detach,
    ConnectBesideAnother,
    DetachBesideAnother,
    BeginMove,
    FinishMove,
)
NOT_WAITING = (later(ReserveAndConnect), later(Connect), later(Detach))
CALLS = (*WAITING, *NOT_WAITING)
