# SPDX-License-Identifier: Apache-2.0
"""Clients of a soak, which carry out their plan and know the state of their attachments."""

import abc
from collections.abc import Iterator, Sequence
from concurrent import futures
import random
import threading
import time
import traceback
from typing import Any, NamedTuple

from attachd.tests.fixtures import initiators
from attachd.tests.soak import plan
from attachd.tests.soak.calls import Calls, GaveUp
from attachd.tests.soak.plan import Intention
from attachd.tests.wait import wait_until

UNSURE = ""
"""The status that a client believes in after a failure."""

_BLOCK = 4096
_LONGEST_HEAD_START = 0.05


class Belief(NamedTuple):
    """What a client knows of an attachment.

    :ivar word: its status; UNSURE: it exists, and its status has to be read
    """

    volume: str
    server: str
    word: str


class Stopped(Exception):
    """The run is over; what the client has at this moment stays."""


class Actor(abc.ABC):
    """One thread that carries out intentions until the run is over.

    :ivar believes: the attachments that it has, by their ids
    :ivar carried_out: how many intentions were carried out to their end
    """

    def __init__(self, name: str, calls: Calls, stop: threading.Event) -> None:
        self.name = name
        self.believes: dict[str, Belief] = {}
        self.carried_out = 0
        self._calls = calls
        self._stop_asked = stop
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start a thread."""
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        """Wait until it has stopped; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @abc.abstractmethod
    def _carry_out_all(self) -> Iterator[None]:
        """Carry out one intention after the other, without end."""

    def _run(self) -> None:
        try:
            for _ in self._carry_out_all():
                self.carried_out += 1
        except Stopped:
            pass
        except GaveUp:
            pass  # which is noted
        except Exception:  # noqa: BLE001  the run's report shows it
            self._calls.history.violation(f"{self.name}: {traceback.format_exc()}")

    def _pause(self, chance: random.Random, longest: float) -> None:
        if self._stop_asked.wait(chance.uniform(0, longest)):
            raise Stopped


class Client(Actor):
    """A host, and a server on it for each intention."""

    def __init__(
        self,
        calls: Calls,
        volumes: tuple[Sequence[str], Sequence[str]],
        host: initiators.IscsiHost,
        seed: int,
        number: int,
        stop: threading.Event,
    ) -> None:
        """Prepare.

        :param volumes: ids of ordinary ones, and of shared ones
        """
        super().__init__(f"client-{number}", calls, stop)
        self._volumes = volumes
        self._host = host
        self._number = number
        ordinary, shared = volumes
        self._intentions = plan.intentions(seed, number, len(ordinary), len(shared))
        self._acts = {
            "attach": self._attach,
            "attach at once": self._attach_at_once,
            "change my mind": self._change_my_mind,
            "race": self._race,
            "check": self._check,
        }

    def _carry_out_all(self) -> Iterator[None]:
        for intention in self._intentions:
            volume = self._volumes[intention.shared][intention.volume]
            self._acts[intention.kind](intention, volume)
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            yield

    def _attach(self, intention: Intention, volume: str) -> None:
        attachment_id = self._reserve(intention, volume, None)
        if attachment_id is not None:
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            self._use(intention, volume, attachment_id, connected=False)

    def _attach_at_once(self, intention: Intention, volume: str) -> None:
        attachment_id = self._reserve(intention, volume, self._host.connector)
        if attachment_id is not None:
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            self._use(
                intention, volume, attachment_id, connected=self._has(attachment_id, "attaching")
            )

    def _change_my_mind(self, intention: Intention, volume: str) -> None:
        attachment_id = self._reserve(intention, volume, None)
        if attachment_id is not None:
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            self._delete(volume, attachment_id)

    def _race(self, intention: Intention, volume: str) -> None:
        attachment_id = self._reserve(intention, volume, None)
        if attachment_id is None:
            return
        self._pause(intention.chance, plan.LONGEST_PAUSE)
        head_start = intention.chance.uniform(0, _LONGEST_HEAD_START)
        with futures.ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(
                self._calls.connect, volume, attachment_id, self._host.connector
            )
            time.sleep(head_start)  # either order is correct
            self._delete(volume, attachment_id)
            connecting.result()

    def _check(self, intention: Intention, volume: str) -> None:
        self._calls.listing(volume)
        self._pause(intention.chance, plan.LONGEST_PAUSE)
        self._calls.check_volume(volume)

    def _use(
        self, intention: Intention, volume: str, attachment_id: str, *, connected: bool
    ) -> None:
        """Connect, complete, show, move bytes, and delete."""
        connected = connected or self._connect(volume, attachment_id)
        if connected:
            self._pause(intention.chance, plan.LONGEST_PAUSE)
            connected = self._complete(volume, attachment_id)
        self._pause(intention.chance, plan.LONGEST_PAUSE)
        seen = self._calls.show(volume, attachment_id)
        logs_in = connected and intention.logs_in and seen is not None
        info = self._info(seen) if seen is not None and logs_in else None
        if info is not None:
            self._move_bytes(intention, info, attachment_id)
        self._pause(intention.chance, plan.LONGEST_HOLD)
        self._delete(volume, attachment_id)
        if info is not None:
            self._check_shut_out(info, attachment_id)

    def _reserve(self, intention: Intention, volume: str, connector: Any) -> str | None:
        attachment_id = self._calls.reserve(volume, intention, connector)
        if attachment_id is None:
            return None
        word = "reserved" if connector is None else UNSURE
        self.believes[attachment_id] = Belief(volume, intention.server, word)
        if connector is None:
            return attachment_id
        # It may have been found in a list, in a transitional state or after a failure, and vanish.
        seen = self._calls.show(volume, attachment_id)
        if seen is None:
            del self.believes[attachment_id]
            return None
        if seen["status"] == "attaching" and seen["connection_info"]:
            self.believes[attachment_id] = self.believes[attachment_id]._replace(word="attaching")
        return attachment_id

    def _has(self, attachment_id: str, word: str) -> bool:
        return self.believes[attachment_id].word == word

    def _connect(self, volume: str, attachment_id: str) -> bool:
        done = self._calls.connect(volume, attachment_id, self._host.connector)
        word = "attaching" if done else UNSURE
        self.believes[attachment_id] = self.believes[attachment_id]._replace(word=word)
        return done

    def _complete(self, volume: str, attachment_id: str) -> bool:
        if not self._calls.complete(volume, attachment_id):
            return False
        self.believes[attachment_id] = self.believes[attachment_id]._replace(word="attached")
        return True

    def _delete(self, volume: str, attachment_id: str) -> None:
        self._calls.delete(volume, attachment_id)
        del self.believes[attachment_id]

    @staticmethod
    def _info(seen: dict[str, Any]) -> dict[str, Any] | None:
        data = seen["connection_info"]
        return {"driver_volume_type": data["driver_volume_type"], "data": data} if data else None

    def _move_bytes(self, intention: Intention, info: dict[str, Any], attachment_id: str) -> None:
        """Write and read, at a place of this client's own; until it works."""
        place, data = self._number * _BLOCK, intention.chance.randbytes(_BLOCK)
        said = f"attachment {attachment_id} is attached and its host cannot log in"

        def moved() -> list[bytes]:
            try:
                self._host.write(info, place, data)
                return [self._host.read(info, place, _BLOCK)]
            except initiators.Refused:
                self._calls.history.count("log in", "refused")
                return []

        try:
            (read,) = wait_until(moved, said, interval=0.5)
        except AssertionError as error:
            self._calls.history.violation(f"{error}")
            return
        self._calls.history.count("log in", "moved bytes")
        if read != data:
            self._calls.history.violation(
                f"attachment {attachment_id} read other bytes than it wrote"
            )

    def _check_shut_out(self, info: dict[str, Any], attachment_id: str) -> None:
        try:
            self._host.read(info, 0, _BLOCK)
        except initiators.Refused:
            self._calls.history.count("log in", "refused after delete")
        else:
            self._calls.history.violation(
                f"attachment {attachment_id} was deleted, and its host logs in"
            )
