# SPDX-License-Identifier: Apache-2.0
"""Those who copy in a soak: volumes of images, snapshots, volumes of these, images of volumes.

Each has a volume of its own, and compares what the storage has with what was written.
"""

from collections.abc import Iterator
import contextlib
from http import client as http
import random
import threading
from typing import Any, Final

from attachd.tests.soak import plan
from attachd.tests.soak.calls import KEY, Calls, Repeated
from attachd.tests.soak.clients import UNSURE, Actor, Belief
from attachd.tests.soak.deployment import SoakDeployment
from attachd.tests.soak.history import History
from attachd.tests.soak.plan import Copying, Intention
from attachd.tests.wait import TIMEOUT, poll

_SIZE: Final = 256 * 1024
"""Bytes that are written and compared."""
_POLL: Final = 0.2
_QCOW2: Final = b"QFI\xfb"
_GONE: Final = "gone"
_NO_BACKEND: Final = "all backends are down"
_DOWN: Final = "is down"
_NO_CHANGE: Final = frozenset({http.BAD_REQUEST, http.NOT_FOUND})


class CopyCalls(Repeated):
    """The calls for volumes, snapshots and images."""

    def __init__(self, stage: SoakDeployment, history: History) -> None:
        super().__init__(stage.url, history)
        self._stage = stage

    def create(self, kind: str, values: dict[str, Any]) -> str:
        """Create a volume or a snapshot, and wait for it; return its id.

        As long as the storage is away, there is no backend for a volume, and what was being
        created then ends in error.
        """
        verb = f"create {kind}"
        for number in self._attempts(verb):
            headers = {KEY: f'"{values["name"]}-{number}"'}
            last = self._repeat(verb, "POST", f"/{kind}s", {kind: values}, headers).last
            if last.status == http.BAD_REQUEST and _NO_BACKEND in f"{last.body}":
                continue
            self._expect(verb, last, http.ACCEPTED)
            made = str(last.body[kind]["id"])
            if self._ended(kind, made) == "error" and _DOWN in self._stage.error_of(kind, made):
                self.history.count(verb, "storage was away")
                self.delete(kind, made)
                continue
            self.wait_for(kind, made, "available")
            return made
        raise AssertionError("attempts end by raising")

    def delete(self, kind: str, resource_id: str) -> None:
        """Delete a volume or a snapshot, and wait until it is gone."""
        path = f"/{kind}s/{resource_id}"
        last = self._repeat(f"delete {kind}", "DELETE", path, clear=_NO_CHANGE).last
        self._expect(f"delete {kind}", last, http.ACCEPTED, *_NO_CHANGE)
        self.wait_for(kind, resource_id, _GONE)

    def act(self, volume: str, action: str, values: dict[str, Any]) -> None:
        """Send an action of a volume; once more, it may find that the volume is busy with it."""
        path = f"/volumes/{volume}/action"
        done = self._repeat(action, "POST", path, {action: values}, clear=_NO_CHANGE)
        again = (http.BAD_REQUEST,) if done.tries > 1 else ()
        self._expect(action, done.last, http.ACCEPTED, *again)

    def wait_for(self, kind: str, resource_id: str, status: str) -> None:
        """Wait until a volume or a snapshot has a status."""
        found = self._ended(kind, resource_id, status)
        if found != status:
            reason = self._stage.error_of(kind, resource_id)
            self._give_up(f"{kind} {resource_id} is {found}, and not {status}: {reason}")

    def _ended(self, kind: str, resource_id: str, status: str = "available") -> str:
        """Wait until a volume or a snapshot has a status, is gone, or failed; return which."""
        ends = {status, _GONE}
        return poll(
            lambda: self._status(kind, resource_id),
            lambda word: word in ends or word.startswith("error"),
            timeout=TIMEOUT,
            interval=_POLL,
        )

    def _status(self, kind: str, resource_id: str) -> str:
        last = self._repeat(f"show {kind}", "GET", f"/{kind}s/{resource_id}").last
        return _GONE if last.status == http.NOT_FOUND else str(last.body[kind]["status"])

    def expect_data(self, what: str, expected: bytes, found: bytes) -> None:
        """Note a violation if data is not what was written."""
        self.history.count("compare", what)
        if found != expected:
            self._give_up(f"{what}: it begins with {found[:16]!r}, and not {expected[:16]!r}")


class Copier(Actor):
    """One who copies.

    :param attach_calls: for its own volume
    :param volume: the id of its own volume
    :param connector: of the host that has the volume at times
    """

    def __init__(
        self,
        attach_calls: Calls,
        stage: SoakDeployment,
        volume: str,
        connector: dict[str, Any],
        number: int,
        stop: threading.Event,
    ) -> None:
        super().__init__(f"copier-{number}", attach_calls, stop)
        self._copies = CopyCalls(stage, attach_calls.history)
        self._stage = stage
        self._volume = volume
        self._connector = connector
        self._intentions = plan.copyings(stage.seed, number)
        self._acts = {
            "volume of image": self._create_of_image,
            "snapshot": self._take_snapshot,
            "image of volume": self._upload,
        }

    def _carry_out_all(self) -> Iterator[None]:
        for intention in self._intentions:
            self._acts[intention.kind](intention)
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            yield

    def _create_of_image(self, intention: Copying) -> None:
        images = self._stage.images
        image = images.converted if intention.converts else images.raw
        wanted = {"size": 1, "imageRef": image, "name": intention.name}
        made = self._copies.create("volume", wanted)
        self._expect_data("volume of an image", images.data, made)
        self._pause(intention.chance, plan.LONGEST_PAUSE)
        self._copies.delete("volume", made)

    def _take_snapshot(self, intention: Copying) -> None:
        with self._in_use(intention) as is_in_use:
            before = self._write(intention.chance)
            wanted = {"volume_id": self._volume, "force": True, "name": intention.name}
            taken = self._copies.create("snapshot", wanted)
            self._write(intention.chance)
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            wanted = {"snapshot_id": taken, "name": f"{intention.name}-copy"}
            made = self._copies.create("volume", wanted)
            self._expect_data("volume of a snapshot", before, made)
            if not is_in_use:
                self._copies.act(self._volume, "revert", {"snapshot_id": taken})
                self._copies.wait_for("volume", self._volume, "available")
                self._expect_data("reverted volume", before, self._volume)
        self._pause(intention.chance, plan.LONGEST_PAUSE)
        self._copies.delete("volume", made)
        self._copies.delete("snapshot", taken)

    def _upload(self, intention: Copying) -> None:
        with self._in_use(intention) as is_in_use:
            expected = self._write(intention.chance)
            wanted = {
                "image_name": intention.name,
                "disk_format": "qcow2" if intention.converts else "raw",
                "force": is_in_use,
            }
            self._copies.act(self._volume, "os-volume_upload_image", wanted)
            self._copies.wait_for("volume", self._volume, "in-use" if is_in_use else "available")
            begins = _QCOW2 if intention.converts else expected
            for data in self._stage.images.wait_for(intention.name):
                known = begins[: len(data)]
                self._copies.expect_data("image of a volume", known, data[: len(known)])

    @contextlib.contextmanager
    def _in_use(self, intention: Copying) -> Iterator[bool]:
        """Let a host have the volume, if that is intended and succeeds."""
        attachment_id = self._attach(intention) if intention.server else None
        yield attachment_id is not None
        if attachment_id is not None:
            self._detach(attachment_id)

    def _attach(self, intention: Copying) -> str | None:
        server, name = f"{intention.server}", intention.name
        wanted = Intention(name, "", False, 0, server, f"copy-{name}", False, intention.chance)
        attachment_id = self._calls.reserve(self._volume, wanted, None)
        if attachment_id is None:
            return None
        self.believes[attachment_id] = Belief(self._volume, server, UNSURE)
        if self._calls.connect(
            self._volume, attachment_id, self._connector
        ) and self._calls.complete(self._volume, attachment_id):
            return attachment_id
        self._detach(attachment_id)
        return None

    def _detach(self, attachment_id: str) -> None:
        self._calls.delete(self._volume, attachment_id)
        del self.believes[attachment_id]

    def _write(self, chance: random.Random) -> bytes:
        """Write to the volume, as its host would do, and return the data."""
        data = chance.randbytes(_SIZE)
        with self._stage.file_of(self._volume).open("r+b") as file:
            file.write(data)
        return data

    def _expect_data(self, what: str, expected: bytes, volume: str) -> None:
        with self._stage.file_of(volume).open("rb") as file:
            self._copies.expect_data(what, expected, file.read(len(expected)))
