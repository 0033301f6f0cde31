# SPDX-License-Identifier: Apache-2.0
"""The commands attachment-timeline and attachment-watch: requests, output and exit codes."""

import json
from unittest import mock

from openstack import exceptions
import requests

from attachd.cli import events as commands
from attachd.cli import watch
from attachd.db.attachments import events
from attachd.tests.unit.cli.programs import Case, Cloud

STEPS = [
    {"name": "wait", "seconds": 0.01, "failed": False},
    {"name": "grant", "seconds": 0.2, "failed": True},
]
VOLUME = "11111111-2222-4333-8444-555555555555"
INTERNALS = {"agent": None, "process": "node1:77", "error": "no such\ntarget"}


def event(type_, revision=None, **more):
    return {
        "revision": revision,
        "type": type_,
        "status": "attaching",
        "attachment_id": "a1",
        "volume_id": "v1",
        "project_id": "p1",
        "occurred_at": "2026-01-31T12:00:00.000000",
        "began_at": None,
        "seconds": None,
        "steps": [],
        "host": "node1",
        "instance_uuid": None,
        "user_id": "alice",
        "request_id": "req-1",
        "global_request_id": None,
        **more,
    }


class EventCloud(Cloud):
    """A cloud with the given answers to requests for events."""

    def __init__(self, *answers, timeline=(), now=10):
        super().__init__()
        self.answers = list(answers)
        self.timeline = list(timeline)
        self.now = now

    def request(self, url, method, raise_exc=True, **request):
        query = request.get("params", {})
        if url == "/events" and "since" in query and isinstance(self.answers[0], int):
            self.asked.append((method, url, request))
            body = {"error": {"message": "Watch from 4711."}}
            return self.response(method, url, self.answers.pop(0), body)
        return super().request(url, method, raise_exc, **request)

    def body(self, method, url, request):
        if url.endswith("/timeline"):
            return {"timeline": self.timeline}
        if url != "/events":
            return super().body(method, url, request)
        found = self.answers.pop(0) if "since" in request["params"] else []
        return {"events": found, "revision": found[-1]["revision"] if found else self.now}

    def queries(self):
        return [request["params"] for _method, url, request in self.asked if url == "/events"]


class TimelineTest(Case):
    def test_timeline_shows_columns_of_owner(self):
        found = event(
            "connected", 4, seconds=0.2, steps=STEPS
        )  # the duration is an invented value
        self.cloud = EventCloud(timeline=[event("reserved", 3, host=None), found])
        row, _later = json.loads(self.run_it("attachment-timeline", "a1", "-f", "json"))
        self.assertEqual("reserved", row["Type"])
        self.assertEqual(["When", "Type", "Status", "Who", "Seconds", "Steps", "Host"], list(row))
        text = self.run_it("attachment-timeline", "a1")
        self.assertIn("wait 0.01, grant 0.2 (failed)", text)
        self.assertEqual("/attachments/a1/timeline", self.cloud.asked[0][1])

    def test_timeline_in_json_keeps_steps(self):
        self.cloud = EventCloud(timeline=[event("connected", steps=STEPS)])
        (row,) = json.loads(self.run_it("attachment-timeline", "a1", "--long", "-f", "json"))
        self.assertEqual(STEPS, row["Steps"])
        self.assertEqual("req-1", row["Request ID"])
        for form in ("csv", "value"):
            self.assertIn("connected", self.run_it("attachment-timeline", "a1", "-f", form))

    def test_timeline_of_admin_has_process_and_error(self):
        self.cloud = EventCloud(timeline=[event("connect_failed", **INTERNALS)])
        (row,) = json.loads(self.run_it("attachment-timeline", "a1", "-f", "json"))
        self.assertEqual(("node1:77", "no such\ntarget"), (row["Process"], row["Error"]))


class WatchTest(Case):
    def watch(self, *words, code=0):
        return self.run_it("attachment-watch", *words, code=code)

    def test_watch_prints_one_line_per_event(self):
        # The duration is an invented value.
        failed = event("connect_failed", 12, seconds=0.2, **INTERNALS)
        self.cloud = EventCloud([event("reserved", 11, host=None)], [failed])
        self.assertEqual(
            "2026-01-31T12:00:00.000000 11 reserved attachment=a1 volume=v1\n"
            "2026-01-31T12:00:00.000000 12 connect_failed attachment=a1 volume=v1 "
            'host=node1 seconds=0.2 error="no such\\ntarget"\n',
            self.watch("--until", "connect_failed"),
        )
        self.assertEqual(
            [{}, {"since": "10", "wait": "50"}, {"since": "11", "wait": "50"}],
            self.cloud.queries(),
        )

    def test_watch_line_escapes_control_characters(self):
        line = commands.line(event("attached", 1, host="\x1b[2Jnode é"))
        self.assertIn(r'host="\u001b[2Jnode \u00e9"', line)
        self.assertTrue(line.isprintable())

    def test_watch_in_json_prints_one_object_per_event(self):
        found = [event("reserved", 11), event("attached", 12)]
        self.cloud = EventCloud(found)
        words = ("--until", "attached", "--until", "deleted", "-f", "json", "--since", "7")
        self.assertEqual(found, [json.loads(line) for line in self.watch(*words).splitlines()])
        self.assertEqual([{"since": "7", "wait": "50"}], self.cloud.queries())

    def test_watch_sends_filters_to_api(self):
        self.cloud = EventCloud([event("attached", 11)], timeline=[])
        self.watch("--volume", VOLUME, "--all-projects", "--until", "attached")
        query = self.cloud.queries()[-1]
        self.assertEqual((VOLUME, "1"), (query["volume_id"], query["all_tenants"]))

    def test_watch_finds_volume_by_name(self):
        self.cloud = EventCloud([event("attached", 11)])
        self.watch("--volume", "data", "--until", "attached")
        self.assertEqual("id of data", self.cloud.queries()[-1]["volume_id"])

    def test_watch_all_projects_finds_volume_of_any_project(self):
        for name in ("data", VOLUME.replace("-", "")):
            self.cloud = EventCloud([event("attached", 11)])
            self.watch("--volume", name, "--all-projects", "--until", "attached")
            self.assertEqual(f"id of {name} anywhere", self.cloud.queries()[-1]["volume_id"])

    def test_watch_retries_while_finding_volume(self):
        self.cloud = EventCloud([event("attached", 11)])
        response = requests.Response()
        response.status_code = 503
        self.cloud.refusals = [exceptions.HttpException(response=response)]
        with mock.patch.object(watch, "MIN_BACKOFF", 0.01):
            self.watch("--volume", "data", "--until", "attached")
        self.assertEqual("id of data", self.cloud.queries()[-1]["volume_id"])

    def test_watch_until_past_event_prints_it_and_ends(self):
        self.cloud = EventCloud(timeline=[event("reserved", 8), event("attached", 9)])
        said = self.watch("--attachment", "a1", "--until", "attached")
        self.assertIn(" 9 attached ", said)
        self.assertEqual([{}], self.cloud.queries())

    def test_watch_does_not_print_other_past_events(self):
        self.cloud = EventCloud([event("deleted", 11)], timeline=[event("attached", 9)])
        said = self.watch("--attachment", "a1", "--until", "deleted")
        self.assertEqual(1, len(said.splitlines()), said)

    def test_watch_ends_when_attachment_is_deleted(self):
        self.cloud = EventCloud([event("deleted", 11)], timeline=[event("attached", 9)])
        self.watch("--attachment", "a1")
        self.cloud = EventCloud(timeline=[event("deleted", 9)])
        self.watch("--attachment", "a1", "--until", "attached", code=1)
        self.assertEqual("It is deleted, and will not be attached.\n", self.said)

    def test_watch_unknown_attachment_fails(self):
        self.cloud = EventCloud()
        self.cloud.missing = {"/attachments/a1/timeline", "/attachments/a1"}
        self.watch("--attachment", "a1", code=1)
        self.assertIn("it is gone", self.said)

    def test_watch_attachment_without_timeline_waits(self):
        self.cloud = EventCloud([event("deleted", 11)])
        self.cloud.missing = {"/attachments/a1/timeline"}
        self.watch("--attachment", "a1")

    def test_watch_ends_after_timeout(self):
        self.cloud = EventCloud(*[[]] * 100)
        self.watch("--until", "attached", "--within", "0.01", code=1)
        self.assertEqual("Not attached within 0.01 seconds.\n", self.said)
        self.watch("--within", "0.01")
        self.assertEqual("", self.said)

    def test_watch_purged_revision_exits_with_3(self):
        self.cloud = EventCloud(410)
        self.watch("--since", "1", code=3)
        self.assertEqual("Watch from 4711.\n", self.said)

    def test_watch_of_service_without_events_fails(self):
        self.cloud.missing = {"/events"}
        self.watch(code=1)
        self.assertIn("This service has no events", self.said)

    def test_watch_with_invalid_option_is_refused(self):
        for words, said in (
            (("--since", "x"), "'x' is no revision"),
            (("--since", "-1"), "is no revision"),
            (("--within", "0"), "'0' is no number of seconds above 0"),
            (("--within", "nan"), "'nan' is no number"),
            (("--within", "soon"), "'soon' is no number"),
            (("--until", "gone"), "invalid choice: 'gone'"),
        ):
            self.watch(*words, code=2)
            self.assertIn(said, self.said)

    def test_until_accepts_all_event_types(self):
        # Holds reserve a volume without a visible attachment and have no event of the API.
        self.assertEqual(set(events.TYPES) - {"held"}, set(commands.TYPES))
