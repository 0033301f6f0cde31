# SPDX-License-Identifier: Apache-2.0
"""The commands that tell what becomes of attachments: what they ask for, print and end with."""

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


class Telling(Cloud):
    """Tells what a test wants, answer by answer."""

    def __init__(self, *answers, timeline=(), now=10):
        super().__init__()
        self.answers = list(answers)
        self.timeline = list(timeline)
        self.now = now

    def request(self, url, method, raise_exc=True, **request):
        wish = request.get("params", {})
        if url == "/events" and "since" in wish and isinstance(self.answers[0], int):
            self.asked.append((method, url, request))
            answer = requests.Response()
            answer.status_code = self.answers.pop(0)
            answer.headers["Content-Type"] = "application/json"
            answer.request = requests.Request(method, f"http://127.0.0.1{url}").prepare()
            answer._content = json.dumps({"error": {"message": "Watch from 4711."}}).encode()
            return answer
        return super().request(url, method, raise_exc, **request)

    def body(self, method, url, request):
        if url.endswith("/timeline"):
            return {"timeline": self.timeline}
        if url != "/events":
            return super().body(method, url, request)
        found = self.answers.pop(0) if "since" in request["params"] else []
        return {"events": found, "revision": found[-1]["revision"] if found else self.now}

    def wishes(self):
        return [request["params"] for _method, url, request in self.asked if url == "/events"]


class TimelineTest(Case):
    def test_a_table_for_its_owner(self):
        found = event("connected", 4, seconds=0.2, steps=STEPS)  # what it took, as it is told
        self.cloud = Telling(timeline=[event("reserved", 3, host=None), found])
        row, _later = json.loads(self.run_it("attachment-timeline", "a1", "-f", "json"))
        self.assertEqual("reserved", row["Type"])
        self.assertEqual(["When", "Type", "Status", "Who", "Seconds", "Steps", "Host"], list(row))
        text = self.run_it("attachment-timeline", "a1")
        self.assertIn("wait 0.01, grant 0.2 (failed)", text)
        self.assertEqual("/attachments/a1/timeline", self.cloud.asked[0][1])

    def test_programs_get_the_steps_as_they_are(self):
        self.cloud = Telling(timeline=[event("connected", steps=STEPS)])
        (row,) = json.loads(self.run_it("attachment-timeline", "a1", "--long", "-f", "json"))
        self.assertEqual(STEPS, row["Steps"])
        self.assertEqual("req-1", row["Request ID"])
        for form in ("csv", "value"):
            self.assertIn("connected", self.run_it("attachment-timeline", "a1", "-f", form))

    def test_administrators_see_who_did_it_and_why_not(self):
        self.cloud = Telling(timeline=[event("connect_failed", **INTERNALS)])
        (row,) = json.loads(self.run_it("attachment-timeline", "a1", "-f", "json"))
        self.assertEqual(("node1:77", "no such\ntarget"), (row["Process"], row["Error"]))


class WatchTest(Case):
    def watch(self, *words, code=0):
        return self.run_it("attachment-watch", *words, code=code)

    def test_each_event_is_a_line(self):
        # It took so long, as it is told.
        failed = event("connect_failed", 12, seconds=0.2, **INTERNALS)
        self.cloud = Telling([event("reserved", 11, host=None)], [failed])
        self.assertEqual(
            "2026-01-31T12:00:00.000000 11 reserved attachment=a1 volume=v1\n"
            "2026-01-31T12:00:00.000000 12 connect_failed attachment=a1 volume=v1 "
            'host=node1 seconds=0.2 error="no such\\ntarget"\n',
            self.watch("--until", "connect_failed"),
        )
        self.assertEqual(
            [{}, {"since": "10", "wait": "50"}, {"since": "11", "wait": "50"}],
            self.cloud.wishes(),
        )

    def test_no_terminal_obeys_what_a_host_is_called(self):
        told = commands.line(event("attached", 1, host="\x1b[2Jnode é"))
        self.assertIn(r'host="\u001b[2Jnode \u00e9"', told)
        self.assertTrue(told.isprintable())

    def test_or_an_object(self):
        found = [event("reserved", 11), event("attached", 12)]
        self.cloud = Telling(found)
        words = ("--until", "attached", "--until", "deleted", "-f", "json", "--since", "7")
        self.assertEqual(found, [json.loads(each) for each in self.watch(*words).splitlines()])
        self.assertEqual([{"since": "7", "wait": "50"}], self.cloud.wishes())

    def test_what_is_wanted_is_left_to_the_api(self):
        self.cloud = Telling([event("attached", 11)], timeline=[])
        self.watch("--volume", VOLUME, "--all-projects", "--until", "attached")
        wish = self.cloud.wishes()[-1]
        self.assertEqual((VOLUME, "1"), (wish["volume_id"], wish["all_tenants"]))

    def test_a_volume_may_be_named(self):
        self.cloud = Telling([event("attached", 11)])
        self.watch("--volume", "data", "--until", "attached")
        self.assertEqual("id of data", self.cloud.wishes()[-1]["volume_id"])

    def test_a_name_is_looked_for_where_events_are(self):
        for name in ("data", VOLUME.replace("-", "")):
            self.cloud = Telling([event("attached", 11)])
            self.watch("--volume", name, "--all-projects", "--until", "attached")
            self.assertEqual(f"id of {name} anywhere", self.cloud.wishes()[-1]["volume_id"])

    def test_an_api_that_cannot_answer_now_is_waited_for_from_the_beginning(self):
        self.cloud = Telling([event("attached", 11)])
        response = requests.Response()
        response.status_code = 503
        self.cloud.refusals = [exceptions.HttpException(response=response)]
        with mock.patch.object(watch, "MIN_BACKOFF", 0.01):
            self.watch("--volume", "data", "--until", "attached")
        self.assertEqual("id of data", self.cloud.wishes()[-1]["volume_id"])

    def test_what_has_happened_to_one_already_is_not_waited_for(self):
        self.cloud = Telling(timeline=[event("reserved", 8), event("attached", 9)])
        said = self.watch("--attachment", "a1", "--until", "attached")
        self.assertIn(" 9 attached ", said)
        self.assertEqual([{}], self.cloud.wishes())

    def test_what_is_past_is_not_told_otherwise(self):
        self.cloud = Telling([event("deleted", 11)], timeline=[event("attached", 9)])
        said = self.watch("--attachment", "a1", "--until", "deleted")
        self.assertEqual(1, len(said.splitlines()), said)

    def test_nothing_comes_after_the_end_of_one(self):
        self.cloud = Telling([event("deleted", 11)], timeline=[event("attached", 9)])
        self.watch("--attachment", "a1")
        self.cloud = Telling(timeline=[event("deleted", 9)])
        self.watch("--attachment", "a1", "--until", "attached", code=1)
        self.assertEqual("It is deleted, and will not be attached.\n", self.said)

    def test_one_that_never_was_is_not_waited_for(self):
        self.cloud = Telling()
        self.cloud.missing = {"/attachments/a1/timeline", "/attachments/a1"}
        self.watch("--attachment", "a1", code=1)
        self.assertIn("it is gone", self.said)

    def test_one_from_before_there_were_events_is(self):
        self.cloud = Telling([event("deleted", 11)])
        self.cloud.missing = {"/attachments/a1/timeline"}
        self.watch("--attachment", "a1")

    def test_the_time_is_up(self):
        self.cloud = Telling(*[[]] * 100)
        self.watch("--until", "attached", "--within", "0.01", code=1)
        self.assertEqual("Not attached within 0.01 seconds.\n", self.said)
        self.watch("--within", "0.01")
        self.assertEqual("", self.said)

    def test_what_is_forgotten_has_a_code_of_its_own(self):
        self.cloud = Telling(410)
        self.watch("--since", "1", code=3)
        self.assertEqual("Watch from 4711.\n", self.said)

    def test_another_service_tells_nothing(self):
        self.cloud.missing = {"/events"}
        self.watch(code=1)
        self.assertIn("This service tells no events", self.said)

    def test_mistakes(self):
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

    def test_all_types_that_are_told_can_be_waited_for(self):
        # What only reserves a volume, without an attachment that anybody sees, is not told.
        self.assertEqual(set(events.TYPES) - {"held"}, set(commands.TYPES))
