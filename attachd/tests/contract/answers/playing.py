# SPDX-License-Identifier: Apache-2.0
"""Send the requests of a scenario and collect the answers; for the test and the command.

Each scenario gets two projects of its own.  Its remaining resources are removed at the end.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import functools
import json
import re
import time
from typing import Any
import uuid

from attachd.tests.contract.answers import normal
from attachd.tests.contract.answers.normal import Answer, Normal
from attachd.tests.contract.answers.scenarios import Given, Request, Scenario
from attachd.tests.wait import Value, poll

CALLERS = {
    "admin": "root:{project}:admin,member,reader",
    "member": "alice:{project}:member,reader",
    "reader": "rita:{project}:reader",
    "no_role": "noel:{project}:",
    "service": "nova:{project}:service",
    "other_project": "mallory:{other}:member,reader",
    "other_admin": "eve:{other}:admin,member,reader",
}
"""Who may ask, and the tokens: user, project, roles."""

_LATEST = "volume 3.71"
_OK = range(200, 300)
_NOT_FOUND = 404
_VARIABLE = re.compile(r"\$([a-z_]+)")


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request without variables, as it is to be sent.

    :ivar path: from the root, percent-encoded
    """

    method: str
    path: str
    headers: dict[str, str]
    content: bytes


Ask = Callable[[Sent], Answer]
"""Sends a request and returns its answer; raises only where there is none."""


class Unknown(Exception):
    """A request needs a variable that no answer has given."""


@dataclasses.dataclass
class Player:
    """Sends scenarios to one server.

    :ivar url: what the links in its answers begin with
    :ivar pace: seconds that have to pass for two times to differ
    :ivar timeout: seconds until a volume must have the status that is waited for
    """

    ask: Ask
    url: str
    pace: float = 0.0
    timeout: float = 30.0
    poll_interval: float = 0.02

    def play(self, scenario: Scenario) -> dict[str, Normal]:
        """Return the answers, by the ids of their requests."""
        stage = _Stage(self)
        try:
            return dict(stage.play(scenario))
        finally:
            stage.clear()


class _Stage:
    """A running scenario: its variables, and the resources that it has made."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._variables = {
            "project": uuid.uuid4().hex,
            "other": uuid.uuid4().hex,
            "unknown": str(uuid.uuid4()),
            "tag": uuid.uuid4().hex[:12],
        }
        self._made: list[str] = []

    def play(self, scenario: Scenario) -> Iterator[tuple[str, Normal]]:
        for step in scenario.steps:
            if isinstance(step, Given):
                with contextlib.suppress(Unknown):  # then what needs it is not asked
                    self._give(step)
                continue
            try:
                yield step.id, self._answer(step)
            except Unknown:
                yield step.id, dict(normal.UNASKED)

    def _answer(self, request: Request) -> Normal:
        if request.pause:
            self._pass_time()
        headers = dict(request.headers)
        if request.version is not None:
            headers["OpenStack-API-Version"] = request.version
        content = request.raw
        if content is None and request.body is not None:
            content = json.dumps(request.body)
        # Earlier messages may be those of another project, and not each caller sees them.
        once = request.method != "GET" or request.keep.keys() <= self._variables.keys()
        answer = self._poll(
            lambda: self._send(request.caller, request.method, request.path, content, headers),
            lambda answer: self._keep(request.keep, answer) or once,
        )
        self._wait(request.wait)
        return normal.normalise(answer, request, self._names())

    def _send(
        self,
        caller: str,
        method: str,
        path: str,
        content: str | None,
        headers: Mapping[str, str],
    ) -> Answer:
        place = self._filled(path)
        place = place[1:] if place.startswith("//") else f"/v3{place}"
        all_headers = {"Accept": "application/json"}
        all_headers |= {key: self._filled(value) for key, value in headers.items()}
        all_headers["X-Auth-Token"] = CALLERS[caller].format(**self._variables)
        if content is not None:
            all_headers.setdefault("Content-Type", "application/json")
        filled = self._filled(content or "").encode()
        answer = self._player.ask(Sent(method, place, all_headers, filled))
        if method == "POST" and answer.status in _OK:
            self._note(place, answer.body)
        return answer

    def _note(self, path: str, body: Any) -> None:
        """Record resources without a project, to remove them at the end."""
        for collection, key in (("/types", "volume_type"), ("/qos-specs", "qos_specs")):
            if path.endswith(collection) and isinstance(body, dict):
                self._made.append(f"{collection}/{body[key]['id']}")

    def _filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in self._variables:
                raise Unknown(match[1])
            return self._variables[match[1]]

        return _VARIABLE.sub(value, text)

    def _keep(self, keep: Mapping[str, str], answer: Answer) -> bool:
        """Store the variables of the answer, and return whether it has all of them."""
        for name, place in keep.items():
            found = answer.body
            for part in place.split("."):
                if isinstance(found, list) and part.isdigit() and int(part) < len(found):
                    found = found[int(part)]
                else:
                    found = found.get(part) if isinstance(found, dict) else None
            if not isinstance(found, str):
                return False
            self._variables[name] = found
        return True

    def _names(self) -> dict[str, str]:
        names = {value: f"<{name}>" for name, value in self._variables.items() if value}
        return {**names, self._player.url: "<url>"}

    def _admin(self, method: str, path: str, body: Any = None) -> Answer:
        content = None if body is None else json.dumps(body)
        headers = {"OpenStack-API-Version": _LATEST, "X-Service-Token": "nova:$project:service"}
        return self._send("admin", method, path, content, headers)

    def _give(self, given: Given) -> None:
        for number, (name, wanted) in enumerate(given.types.items()):
            if number:
                self._pass_time()
            answer = self._admin("POST", "/types", {"volume_type": wanted})
            self._keep({name: "volume_type.id"}, answer)
        for number, (name, wanted) in enumerate(given.volumes.items()):
            if number:
                self._pass_time()
            content = json.dumps({"volume": {"size": 1, **wanted}})
            headers = {"OpenStack-API-Version": _LATEST}
            answer = self._send("member", "POST", "/volumes", content, headers)
            self._keep({name: "volume.id"}, answer)
            if answer.status in _OK:
                self._wait({name: "available"})

    def _wait(self, wanted: Mapping[str, str]) -> None:
        for name, status in wanted.items():
            if name in self._variables:
                self._poll(functools.partial(self._status, name), {status, "error"}.__contains__)

    def _poll(self, get: Callable[[], Value], is_expected: Callable[[Value], object]) -> Value:
        """Wait for an answer that is expected; return the last one if none is."""
        player = self._player
        return poll(get, is_expected, timeout=player.timeout, interval=player.poll_interval)

    def _pass_time(self) -> None:
        time.sleep(self._player.pace)  # longer than the resolution of the server's timestamps

    def _status(self, name: str) -> str:
        answer = self._admin("GET", f"/volumes/{self._variables[name]}")
        if answer.status == _NOT_FOUND:
            return "gone"
        return str((answer.body or {}).get("volume", {}).get("status"))

    def clear(self) -> None:
        """Remove what is left of the scenario, as far as the server has it."""
        for item in self._listed("attachments"):
            self._admin("DELETE", f"/attachments/{item}")
        free = {"status": "available", "attach_status": "detached", "migration_status": "none"}
        for item in self._listed("volumes"):
            self._admin("POST", f"/volumes/{item}/action", {"os-reset_status": free})
            self._admin("DELETE", f"/volumes/{item}")
        self._poll(lambda: self._listed("volumes"), lambda listed: not listed)
        for item in self._listed("messages"):
            self._admin("DELETE", f"/messages/{item}")
        for path in ("/default-types/$project", "/os-quota-sets/$project"):
            self._admin("DELETE", path)
        for path in self._made:
            self._admin("DELETE", path)

    def _listed(self, noun: str) -> list[str]:
        body = self._admin("GET", f"/{noun}").body or {}
        return [item["id"] for item in body.get(noun, [])]
