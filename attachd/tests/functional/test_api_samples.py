# SPDX-License-Identifier: Apache-2.0
"""Tests of the API reference: each call is documented, each sample equals a real response.

``python -m attachd.tests.functional.test_api_samples`` rewrites the samples.
"""

from collections import Counter
from collections.abc import Callable, Iterator
import json
from pathlib import Path
import re
from typing import Any, NamedTuple
import unittest
from unittest import mock
import uuid

import yaml

from attachd.api import endpoint
from attachd.db import messages
from attachd.db.engine import paging
from attachd.drivers import abilities
from attachd.rpc import agent_api
from attachd.tests.fixtures import db_rows, fake_agent, response_validation, wsgi_api
from attachd.tests.wait import wait_for

REFERENCE = Path(__file__).parents[3] / "api-ref" / "source" / "v3"
SAMPLES = REFERENCE / "samples"

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")
_SECONDS = re.compile(r'"seconds": [\d.]+(e-\d+)?')
_AUTH_KEY = re.compile(r'(?<="auth_key": ")[0-9a-f]{32}')
_METHOD = re.compile(r"^\.\. rest_method:: +(\w+) (\S+)$", re.MULTILINE)
_SERVER = "11111111-2222-4333-8444-555555555555"


class Step(NamedTuple):
    """One call of the sequence that makes the samples.

    ``{name}`` in a path or a body is the id that the step of that name answered.
    """

    name: str
    method: str
    path: str
    body: Any
    token: str
    version: str


Asker = Callable[[wsgi_api.WsgiApi, Step], wsgi_api.Response]


_DATA = (Path(__file__).parent / "api_samples.yaml").read_text(encoding="utf-8")
_STORY = yaml.safe_load(_DATA.replace("{project}", wsgi_api.PROJECT).replace("{server}", _SERVER))


def _step(name: str = "", *, request: str, version: str = "", **fields: Any) -> Step:
    method, _, path = request.partition(" ")
    token = wsgi_api.ADMIN if fields.get("user") == "admin" else wsgi_api.MEMBER
    versions = ", ".join(filter(None, [wsgi_api.LATEST, version]))
    return Step(name, method, path, fields.get("body"), token, versions)


STORY = [_step(**step) for step in _STORY["steps"]]

_UNSHOWN = {
    *("", "available", "copied", "no-snapshots", "volume-copy"),
    *("snapshot-kept", "snapshot-kept-available", "snapshot-kept-gone"),
    *("snapshot-managed", "snapshot-managed-gone"),
}
"""Steps whose answers are no samples."""


def generate_samples(api: wsgi_api.WsgiApi, ask: Asker | None = None) -> Iterator[tuple[str, str]]:
    """Send the story; yield file names and samples, in which ids and times are made up.

    :param ask: what sends each step; None: :func:`sent`
    """
    ask = ask or sent
    ids: dict[str, str] = {"message": _add_message()}
    fake_agent.report_agent(
        "compute-2",
        devices=_STORY["devices"],
        observed={"devices": _STORY["other_devices"], "asked": []},
        max_attachments=28,
    )
    stand_ins = {_SERVER: _SERVER}
    for step in STORY:
        body = _filled(step.body, ids)
        holder = ids.get("attachment-create", "")
        reservation = abilities.PersistentReservation(holder, "Write Exclusive Access")
        driver = api.backend.driver
        with (
            mock.patch.object(driver, "grant", return_value=_STORY["connection"]),
            mock.patch.object(driver, "get_persistent_reservation", return_value=reservation),
            mock.patch.object(agent_api, "reconcile", fake_agent.act_as_agent),
        ):
            answer = ask(api, step._replace(path=_filled(step.path, ids), body=body))
        if answer.raw and step.method == "POST" and step.name:
            ids[step.name] = _id_in(answer.body)
        if step.name == "transfer-create":
            ids[f"{step.name}.auth_key"] = answer.body["transfer"]["auth_key"]
        if step.body is not None and step.name and step.name != "snapshot-kept":
            name = f"{step.name}-request.json"
            yield name, _made_up(name, body, stand_ins)
        if answer.raw and step.name not in _UNSHOWN:
            name = f"{step.name}-response.json"
            yield name, _made_up(name, answer.body, stand_ins)


def _add_message() -> str:
    volume_id, request_id = (f"{uuid.uuid4()}" for _ in range(2))
    news = messages.NewMessage(
        volume_id, wsgi_api.PROJECT, messages.CREATE, messages.NOT_CREATED, f"req-{request_id}"
    )
    messages.create(news, 30 * 24 * 3600)
    identity: str = messages.page({}, paging.Page(limit=1))[0]["id"]
    return identity


def _id_in(body: dict[str, Any]) -> str:
    made = next(iter(body.values()))
    return str(made.get("id", "")) if isinstance(made, dict) else ""


def sent(api: wsgi_api.WsgiApi, step: Step) -> wsgi_api.Response:
    """Send a step, whose ids are filled in, until what is waited for has come."""

    def ask() -> wsgi_api.Response:
        answer = api.request(
            step.method, step.path, step.body, token=step.token, version=step.version
        )
        assert answer.status < 400, (step, answer)
        response_validation.check_response(
            step.method,
            f"/v3{step.path}".partition("?")[0],
            step.version,
            answer.status,
            answer.raw,
        )
        return answer

    if step.name not in _AWAITED:
        return ask()
    return wait_for(ask, lambda answer: _AWAITED[step.name](answer.body), f"{step}")


def _is_available(body: Any) -> bool:
    return bool(body["volume"]["status"] == "available")


def _has_object(body: Any) -> bool:
    # The backend has it before the volume is gone.
    leaving = [volume for volume in db_rows.list_volumes() if volume["status"] == "unmanaging"]
    return not leaving and any(item["safe_to_manage"] for item in body["manageable-volumes"])


_AWAITED: dict[str, Callable[[Any], bool]] = {
    "available": _is_available,
    "copied": _is_available,
    "snapshot-show": lambda body: bool(body["snapshot"]["status"] == "available"),
    **dict.fromkeys(
        ("snapshot-kept-available", "snapshot-managed"),
        lambda body: bool(body["snapshot"]["status"] == "available"),
    ),
    **dict.fromkeys(
        ("no-snapshots", "snapshot-kept-gone", "snapshot-managed-gone"),
        lambda body: not body["snapshots"],
    ),
    "manageable-list": _has_object,
}


def _filled(value: Any, ids: dict[str, str]) -> Any:
    text = json.dumps(value)
    for name, identity in ids.items():
        text = text.replace(f"{{{name}}}", identity)
    return json.loads(text)


def _made_up(name: str, value: Any, stand_ins: dict[str, str]) -> str:
    """Write JSON with ids and times that are always the same.

    An id is named by the first sample that has it, so that a new sample changes no other one.

    :param stand_ins: of the ids in earlier samples; those of this one are added
    """
    text = json.dumps(value, indent=4)
    new = [found for found in dict.fromkeys(_UUID.findall(text)) if found not in stand_ins]
    for number, found in enumerate(new):
        stand_ins[found] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {number}"))
    text = _UUID.sub(lambda found: stand_ins[found[0]], text)
    text = _SECONDS.sub('"seconds": 0.0125', text)
    text = _AUTH_KEY.sub("9f0a4c1e" * 4, text)
    return _TIME.sub("2026-01-31T12:00:00.000000", text) + "\n"


def _shape(value: Any) -> Any:
    """Keep keys and types."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return type(value).__name__


class ReferenceTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        if not REFERENCE.is_dir():
            self.skipTest(f"The API reference is not here: {REFERENCE}")
        self.pages = {path.name: path.read_text() for path in sorted(REFERENCE.glob("*.inc"))}
        self.text = "\n".join(self.pages.values())

    def test_api_reference_documents_exactly_all_calls(self):
        served_calls = Counter(
            (api_endpoint.method, f"/v3/{{project_id}}{api_endpoint.path}")
            for api_endpoint in endpoint.load()
        )
        served_calls += Counter([("GET", "/"), ("GET", "/v3/")])
        self.assertEqual(served_calls, Counter(_METHOD.findall(self.text)))

    def test_api_reference_names_all_actions(self):
        for api_endpoint in endpoint.load():
            if api_endpoint.action:
                self.assertIn(f"({api_endpoint.action})", self.text)

    def test_api_samples_equal_real_requests_and_responses(self):
        written = {path.name: path.read_text() for path in SAMPLES.glob("*.json")}
        real = dict(generate_samples(wsgi_api.use(self)))
        self.assertEqual(sorted(real), sorted(written))
        for name, text in real.items():
            with self.subTest(name):
                self.assertEqual(_shape(json.loads(text)), _shape(json.loads(written[name])))

    def test_api_samples_are_all_shown_in_the_reference(self):
        shown = set(re.findall(r"samples/(\S+\.json)", self.text))
        self.assertEqual(sorted(shown), sorted(path.name for path in SAMPLES.glob("*.json")))

    def test_api_reference_pages_are_all_in_the_index(self):
        index = (REFERENCE / "index.rst").read_text()
        self.assertEqual(sorted(self.pages), sorted(re.findall(r"include:: (\S+\.inc)", index)))


class _Writer(unittest.TestCase):
    """Lends its clean-ups to the command."""


def write() -> None:
    """Write all samples."""
    owner = _Writer()
    SAMPLES.mkdir(parents=True, exist_ok=True)
    for name, text in generate_samples(wsgi_api.use(owner)):
        (SAMPLES / name).write_text(text)
    owner.doCleanups()


if __name__ == "__main__":
    write()
