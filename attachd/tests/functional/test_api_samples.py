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

from attachd.api import endpoint
from attachd.db import messages
from attachd.db.engine import paging
from attachd.rpc import agent_api
from attachd.tests.fixtures import fake_agent, response_validation, wsgi_api
from attachd.tests.wait import wait_for

REFERENCE = Path(__file__).parents[3] / "api-ref" / "source" / "v3"
SAMPLES = REFERENCE / "samples"

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")
_SECONDS = re.compile(r'"seconds": \d+\.\d+(e-\d+)?')
_METHOD = re.compile(r"^\.\. rest_method:: +(\w+) (\S+)$", re.MULTILINE)
_SERVER = "11111111-2222-4333-8444-555555555555"


class Step(NamedTuple):
    """One call of the sequence that makes the samples.

    ``{name}`` in a path or a body is the id that the step of that name answered.
    """

    name: str
    method: str
    path: str
    body: Any = None
    token: str = wsgi_api.MEMBER
    version: str = wsgi_api.LATEST


Asker = Callable[[wsgi_api.WsgiApi, Step], wsgi_api.Response]


def _own(name: str, method: str, path: str) -> Step:
    return Step(name, method, path, version=f"{wsgi_api.LATEST}, attachd 1.0")


def _admin(name: str, method: str, path: str, body: Any = None) -> Step:
    return Step(name, method, path, body, wsgi_api.ADMIN)


def _own_admin(name: str, method: str, path: str, body: Any = None) -> Step:
    return _admin(name, method, path, body)._replace(version=f"{wsgi_api.LATEST}, attachd 1.0")


_VOLUME = "/volumes/{volume-create}"
_TYPE = "/types/{type-create}"
_PRIVATE = "/types/{type-create-private}"
_QOS = "/qos-specs/{qos-create}"
_DEFAULT_TYPE = f"/default-types/{wsgi_api.PROJECT}"
_ATTACHMENT = "/attachments/{attachment-create}"
_CONNECTOR = {
    "host": "compute-1",
    "initiator": "iqn.1994-05.com.example:compute-1",
    "ip": "192.0.2.10",
    "multipath": False,
    "platform": "x86_64",
    "os_type": "linux",
    "mountpoint": "/dev/vdb",
}
_NODE = {key: value for key, value in _CONNECTOR.items() if key != "mountpoint"}
_HOST = "compute-2"
_DEVICES = [{
    "attachment_id": "51d2d6d8-0c5f-4b1c-8a5e-3a8f5e7d2b10",
    "volume_id": "c3a0a2f4-9b8e-4f7e-9c0c-6a3f1d2e4b5a",
    "path": "/dev/sdb",
    "size_bytes": 10 * 2**30,
    "mountpoint": None,
}]  # fmt: skip
_ISCSI = {
    "driver_volume_type": "iscsi",
    "data": {
        "target_discovered": False,
        "target_iqn": "iqn.2010-10.org.openstack:volume-archive",
        "target_portal": "192.0.2.20:3260",
        "target_lun": 1,
        "auth_method": "CHAP",
        "auth_username": "compute-1",
        "auth_password": "not-a-real-secret",
    },
}
_QUOTAS = f"/os-quota-sets/{wsgi_api.PROJECT}"
_SERVICE = {"host": "here@fake", "binary": "cinder-volume"}

STORY = [
    _admin("type-create", "POST", "/types", {
        "volume_type": {"name": "shared", "description": "For clusters",
                        "os-volume-type-access:is_public": True, "extra_specs": {}}}),
    _admin("type-specs-create", "POST", f"{_TYPE}/extra_specs", {
        "extra_specs": {"multiattach": "<is> True", "storage_protocol": "fake"}}),
    _admin("type-spec-update", "PUT", f"{_TYPE}/extra_specs/storage_protocol",
           {"storage_protocol": "<or> fake <or> iSCSI"}),
    _admin("type-specs-list", "GET", f"{_TYPE}/extra_specs"),
    _admin("type-spec-show", "GET", f"{_TYPE}/extra_specs/multiattach"),
    _admin("type-show", "GET", _TYPE),
    _admin("type-list", "GET", "/types"),
    _admin("type-update", "PUT", _TYPE, {"volume_type": {"description": "For file systems"}}),
    _admin("type-create-private", "POST", "/types", {
        "volume_type": {"name": "private", "os-volume-type-access:is_public": False}}),
    _admin("type-access-add", "POST", f"{_PRIVATE}/action", {
        "addProjectAccess": {"project": wsgi_api.PROJECT}}),
    _admin("type-access-list", "GET", f"{_PRIVATE}/os-volume-type-access"),
    _admin("type-access-remove", "POST", f"{_PRIVATE}/action", {
        "removeProjectAccess": {"project": wsgi_api.PROJECT}}),
    _admin("type-encryption-show", "GET", f"{_TYPE}/encryption"),
    _admin("default-type-set", "PUT", _DEFAULT_TYPE, {"default_type": {"volume_type": "shared"}}),
    _admin("default-type-show", "GET", _DEFAULT_TYPE),
    _admin("default-type-list", "GET", "/default-types"),
    _admin("qos-create", "POST", "/qos-specs", {
        "qos_specs": {"name": "steady", "consumer": "front-end", "total_iops_sec_per_gb": "10",
                      "total_iops_sec_per_gb_min": "100"}}),
    _admin("qos-update", "PUT", _QOS, {"qos_specs": {"total_iops_sec_max": "1000"}}),
    _admin("qos-delete-keys", "PUT", f"{_QOS}/delete_keys", {"keys": ["total_iops_sec_max"]}),
    _admin("", "GET", f"{_QOS}/associate?vol_type_id={{type-create}}"),
    _admin("qos-show", "GET", _QOS),
    _admin("qos-list", "GET", "/qos-specs"),
    _admin("qos-associations", "GET", f"{_QOS}/associations"),
    Step("volume-create", "POST", "/volumes", {
        "volume": {"size": 10, "name": "disk", "description": "Data", "volume_type": "shared",
                   "availability_zone": "nova", "metadata": {"use": "data"}}}),
    Step("available", "GET", _VOLUME),
    Step("volume-update", "PUT", _VOLUME, {
        "volume": {"name": "archive", "description": "Old data"}}),
    Step("volume-list", "GET", "/volumes?limit=1"),
    Step("volume-summary", "GET", "/volumes/summary"),
    Step("volume-encryption", "GET", f"{_VOLUME}/encryption"),
    Step("metadata-create", "POST", f"{_VOLUME}/metadata", {"metadata": {"owner": "archive"}}),
    Step("metadata-show", "GET", f"{_VOLUME}/metadata"),
    Step("metadata-replace", "PUT", f"{_VOLUME}/metadata", {"metadata": {"use": "archive"}}),
    Step("metadata-key-update", "PUT", f"{_VOLUME}/metadata/use", {"meta": {"use": "archive"}}),
    Step("metadata-key-show", "GET", f"{_VOLUME}/metadata/use"),
    Step("attachment-create", "POST", "/attachments", {
        "attachment": {"volume_uuid": "{volume-create}", "instance_uuid": _SERVER, "mode": "rw"}}),
    Step("attachment-create-connected", "POST", "/attachments", {
        "attachment": {"volume_uuid": "{volume-create}", "connector": _CONNECTOR}}),
    Step("attachment-update", "PUT", _ATTACHMENT, {"attachment": {"connector": _CONNECTOR}}),
    Step("attachment-complete", "POST", f"{_ATTACHMENT}/action", {"os-complete": None}),
    Step("attachment-show", "GET", _ATTACHMENT),
    Step("attachment-list", "GET", "/attachments"),
    Step("attachment-list-detail", "GET", "/attachments/detail?limit=1"),
    _own("own-attachment-show", "GET", _ATTACHMENT),
    _own("own-volume-show", "GET", _VOLUME),
    _own("own-volume-list", "GET", "/volumes?limit=1"),
    _admin("volume-show", "GET", _VOLUME),
    _admin("volume-list-detail", "GET", "/volumes/detail?with_count=True&limit=1"),
    Step("attachment-delete", "DELETE", _ATTACHMENT),
    _own("own-attachment-delete", "DELETE", "/attachments/{attachment-create-connected}"),
    _own("attachment-timeline", "GET", f"{_ATTACHMENT}/timeline"),
    _own("event-list", "GET", "/events?since=1&limit=1"),
    _own_admin("agent-list", "GET", "/agents"),
    _own_admin("agent-show", "GET", f"/agents/{_HOST}"),
    _own_admin("own-attachment-create-on-host", "POST", "/attachments", {
        "attachment": {"volume_uuid": "{volume-create}", "host": _HOST}}),
    Step("", "DELETE", "/attachments/{own-attachment-create-on-host}"),
    _own_admin("", "DELETE", f"/agents/{_HOST}"),
    Step("volume-extend", "POST", f"{_VOLUME}/action", {"os-extend": {"new_size": 20}}),
    Step("available", "GET", _VOLUME),
    Step("volume-reserve", "POST", f"{_VOLUME}/action", {"os-reserve": None}),
    Step("volume-unreserve", "POST", f"{_VOLUME}/action", {"os-unreserve": None}),
    Step("volume-initialize-connection", "POST", f"{_VOLUME}/action", {
        "os-initialize_connection": {"connector": _NODE}}),
    Step("volume-attach", "POST", f"{_VOLUME}/action", {
        "os-attach": {"instance_uuid": _SERVER, "mountpoint": "/dev/vdb", "mode": "rw"}}),
    Step("volume-begin-detaching", "POST", f"{_VOLUME}/action", {"os-begin_detaching": None}),
    Step("volume-roll-detaching", "POST", f"{_VOLUME}/action", {"os-roll_detaching": None}),
    Step("volume-terminate-connection", "POST", f"{_VOLUME}/action", {
        "os-terminate_connection": {"connector": _NODE}}),
    Step("volume-detach", "POST", f"{_VOLUME}/action", {
        "os-detach": {"attachment_id": "{attachment-create}"}}),
    Step("", "POST", f"{_VOLUME}/action", {"os-detach": None}),  # that one had been deleted
    _admin("volume-force-detach", "POST", f"{_VOLUME}/action", {
        "os-force_detach": {"attachment_id": None, "connector": _NODE}}),
    _admin("volume-reset-status", "POST", f"{_VOLUME}/action",
           {"os-reset_status": {"status": "available", "attach_status": "detached"}}),
    _admin("quota-class-update", "PUT", "/os-quota-class-sets/default",
           {"quota_class_set": {"volumes": 10, "gigabytes": 1000}}),
    _admin("quota-class-show", "GET", "/os-quota-class-sets/default"),
    _admin("quota-update", "PUT", _QUOTAS, {
        "quota_set": {"volumes": 20, "gigabytes": 2000, "gigabytes_shared": 500}}),
    Step("quota-show", "GET", f"{_QUOTAS}?usage=True"),
    Step("quota-defaults", "GET", f"{_QUOTAS}/defaults"),
    _admin("quota-delete", "DELETE", _QUOTAS),
    _admin("", "POST", "/types", {"volume_type": {"name": "plain"}}),
    Step("volume-retype", "POST", f"{_VOLUME}/action", {
        "os-retype": {"new_type": "plain", "migration_policy": "never"}}),
    Step("volume-set-bootable", "POST", f"{_VOLUME}/action", {
        "os-set_bootable": {"bootable": True}}),
    Step("volume-update-readonly", "POST", f"{_VOLUME}/action", {
        "os-update_readonly_flag": {"readonly": True}}),
    Step("image-metadata-set", "POST", f"{_VOLUME}/action", {
        "os-set_image_metadata": {"metadata": {"os_type": "linux", "hw_disk_bus": "scsi"}}}),
    Step("image-metadata-unset", "POST", f"{_VOLUME}/action", {
        "os-unset_image_metadata": {"key": "hw_disk_bus"}}),
    Step("image-metadata-show", "POST", f"{_VOLUME}/action", {"os-show_image_metadata": None}),
    _admin("service-list", "GET", "/os-services"),
    _admin("service-disable-with-reason", "PUT", "/os-services/disable-log-reason",
           {**_SERVICE, "disabled_reason": "A disk is replaced"}),
    _admin("service-disable", "PUT", "/os-services/disable", _SERVICE),
    _admin("service-enable", "PUT", "/os-services/enable", _SERVICE),
    _admin("service-freeze", "PUT", "/os-services/freeze", {"host": "here@fake"}),
    _admin("service-thaw", "PUT", "/os-services/thaw", {"host": "here@fake"}),
    _admin("service-set-log", "PUT", "/os-services/set-log", {
        "level": "DEBUG", "binary": "cinder-volume", "server": "here@fake",
        "prefix": "attachd.manager.ha.recovery"}),
    _admin("service-get-log", "PUT", "/os-services/get-log", {
        "binary": "*", "server": "", "prefix": "attachd.manager.ha.recovery"}),
    _admin("host-list", "GET", "/os-hosts"),
    _admin("host-show", "GET", "/os-hosts/here@fake"),
    _admin("cluster-list", "GET", "/clusters"),
    _admin("cluster-list-detail", "GET", "/clusters/detail"),
    _admin("cleanup", "POST", "/workers/cleanup", {"host": "here@fake", "is_up": True}),
    _admin("pools", "GET", "/scheduler-stats/get_pools"),
    _admin("pools-detail", "GET", "/scheduler-stats/get_pools?detail=True"),
    _admin("capabilities", "GET", "/capabilities/here@fake"),
    Step("limits", "GET", "/limits"),
    Step("extension", "GET", "/extensions/os-vol-host-attr"),
    Step("extensions", "GET", "/extensions"),
    Step("availability-zones", "GET", "/os-availability-zone"),
    Step("resource-filters", "GET", "/resource_filters"),
    Step("messages", "GET", "/messages"),
    Step("message-show", "GET", "/messages/{message}"),
    Step("volume-copy", "POST", "/volumes", {
        "volume": {"source_volid": "{volume-create}", "name": "copy"}}),
    Step("copied", "GET", "/volumes/{volume-copy}"),
    _admin("volume-force-delete", "POST", f"{_VOLUME}/action", {"os-force_delete": {}}),
    Step("versions", "GET", "//"),
    Step("version", "GET", "//v3/"),
]  # fmt: skip


_UNSHOWN = {"", "available", "copied", "volume-copy"}
"""Steps whose answers are no samples."""


def generate_samples(api: wsgi_api.WsgiApi, ask: Asker | None = None) -> Iterator[tuple[str, str]]:
    """Send the story; yield file names and samples, in which ids and times are made up.

    :param ask: what sends each step; None: :func:`sent`
    """
    ask = ask or sent
    ids: dict[str, str] = {"message": _add_message()}
    fake_agent.report_agent(_HOST, devices=_DEVICES)
    stand_ins = {_SERVER: _SERVER}
    for step in STORY:
        body = _filled(step.body, ids)
        with (
            mock.patch.object(api.backend.driver, "grant", return_value=_ISCSI),
            mock.patch.object(agent_api, "reconcile", fake_agent.act_as_agent),
        ):
            answer = ask(api, step._replace(path=_filled(step.path, ids), body=body))
        if answer.raw and step.method == "POST" and step.name:
            ids[step.name] = _id_in(answer.body)
        if step.body is not None and step.name:
            yield f"{step.name}-request.json", _made_up(body, stand_ins)
        if answer.raw and step.name not in _UNSHOWN:
            yield f"{step.name}-response.json", _made_up(answer.body, stand_ins)


def _add_message() -> str:
    """Let something have gone wrong."""
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

    if step.name not in {"available", "copied"}:
        return ask()
    return wait_for(ask, lambda answer: answer.body["volume"]["status"] == "available", f"{step}")


def _filled(value: Any, ids: dict[str, str]) -> Any:
    text = json.dumps(value)
    for name, identity in ids.items():
        text = text.replace(f"{{{name}}}", identity)
    return json.loads(text)


def _made_up(value: Any, stand_ins: dict[str, str]) -> str:
    """Write JSON with ids and times that are always the same."""
    text = json.dumps(value, indent=4)
    for found in _UUID.findall(text):
        number = len(stand_ins)
        stand_in = str(uuid.uuid5(uuid.NAMESPACE_URL, f"attachd-sample-{number}"))
        text = text.replace(found, stand_ins.setdefault(found, stand_in))
    text = _SECONDS.sub('"seconds": 0.0125', text)
    return _TIME.sub("2026-01-31T12:00:00.000000", text) + "\n"


def _shape(value: Any) -> Any:
    """Keep keys and types."""
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value]
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
            (each.method, f"/v3/{{project_id}}{each.path}") for each in endpoint.load()
        )
        served_calls += Counter([("GET", "/"), ("GET", "/v3/")])
        self.assertEqual(served_calls, Counter(_METHOD.findall(self.text)))

    def test_api_reference_names_all_actions(self):
        for each in endpoint.load():
            if each.action:
                self.assertIn(f"({each.action})", self.text)

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
