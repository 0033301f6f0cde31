# SPDX-License-Identifier: Apache-2.0
"""Volume actions that attach and detach, with the state that each must reach."""

from collections.abc import Iterable
from http import client as http

from attachd.tests.crash.calls import Call
from attachd.tests.fixtures.http_client import Request


class InitializeConnection(Call):
    """The action os-initialize_connection."""

    def prepare(self) -> None:
        """Take the volume."""
        super().prepare()
        self._act("os-reserve")

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-initialize_connection", {"connector": self.connector})

    def wrong(self) -> Iterable[str]:
        """The host is let in, once, for the one who has taken the volume."""
        wanted = [("connection", "connected"), ("hold", "held")]
        yield from self._differs("rows", wanted, self._states())


class Attach(InitializeConnection):
    """The action os-attach."""

    ENDS = frozenset({http.ACCEPTED, http.BAD_REQUEST})
    """A volume that is attached already cannot be attached."""

    def prepare(self) -> None:
        """Take the volume and let the host in."""
        super().prepare()
        self._act("os-initialize_connection", {"connector": self.connector})

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-attach", self._claim())

    def _claim(self) -> dict[str, str]:
        return {"instance_uuid": self.server, "mountpoint": "/dev/vdb"}

    def wrong(self) -> Iterable[str]:
        """It is attached, once, through this connection."""
        wanted = [("connection", "connected"), ("legacy", "attached")]
        yield from self._differs("rows", wanted, self._states())
        yield from self._status_differs("in-use")


class TerminateConnection(Attach):
    """The action os-terminate_connection, as in an ordinary detach."""

    ENDS = frozenset({http.ACCEPTED})

    def prepare(self) -> None:
        """Attach, and begin to detach."""
        super().prepare()
        self._act("os-attach", self._claim())
        self._act("os-begin_detaching")

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-terminate_connection", {"connector": self.connector})

    def wrong(self) -> Iterable[str]:
        """The attachment alone is left."""
        yield from self._differs("rows", [("legacy", "attached")], self._states())
        yield from self._status_differs("detaching")


class LegacyDetach(TerminateConnection):
    """The action os-detach, of a host that is still connected."""

    ENDS = frozenset({http.ACCEPTED, http.BAD_REQUEST, http.NOT_FOUND})

    def request(self) -> Request:
        """Return the call."""
        return self._action("os-detach", {})

    def wrong(self) -> Iterable[str]:
        """Nothing is left."""
        yield from self._differs("rows", [], self._states())
        yield from self._status_differs("available")


CALLS = (InitializeConnection, Attach, TerminateConnection, LegacyDetach)
