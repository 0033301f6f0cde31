# SPDX-License-Identifier: Apache-2.0
"""The comparison of answers, which test_recorded_answers uses."""

import json
from pathlib import Path
import sys
import tempfile
import threading
import unittest
from wsgiref import simple_server

import yaml

import attachd
from attachd.tests.contract import test_recorded_answers
from attachd.tests.contract.answers import differences, normal, over_http, recording, scenarios
from attachd.tests.contract.answers.playing import Player
from attachd.tests.fixtures import lifetime, processes

ID = "0d2a3b9c-95b8-4a0a-9d39-3c4c4bd0c7f0"
REQUEST_ID = f"req-{ID}"
USUAL = {
    "OpenStack-API-Version": "volume 3.71",
    "Vary": "OpenStack-API-Version",
    "Content-Type": "application/json",
    "x-openstack-request-id": REQUEST_ID,
    "x-compute-request-id": REQUEST_ID,
}


def request(**values):
    usual = {"id": "n/s/r", "method": "GET", "path": "/", "caller": "member"}
    return scenarios.Request(**usual, version="volume 3.71", **values)


def normalised(body, headers=USUAL, names=(), status=200, **values):
    answer = normal.Answer(status, headers, json.dumps(body).encode())
    return normal.normalise(answer, request(**values), dict(names))


class NormalTest(unittest.TestCase):
    def test_usual_headers_are_omitted(self):
        self.assertEqual({"status": 200, "body": {}}, normalised({}))

    def test_compare_reports_missing_and_different_headers(self):
        headers = {**USUAL, "Vary": "Accept", "Location": "/"}
        del headers["Content-Type"]
        self.assertEqual(
            {"vary": "Accept", "content-type": None, "location": "/"},
            normalised({}, headers)["headers"],
        )

    def test_compare_distinguishes_request_ids(self):
        headers = {**USUAL, "x-compute-request-id": REQUEST_ID.replace("0d", "1d")}
        self.assertIn("x-compute-request-id", normalised({}, headers)["headers"])

    def test_known_ids_are_named_and_others_masked(self):
        body = {"id": ID, "project": "a" * 32, "other": ID.replace("0", "1")}
        self.assertEqual(
            {"id": "<volume>", "project": "<uuid without dashes>", "other": "<uuid>"},
            normalised(body, names={ID: "<volume>"})["body"],
        )

    def test_times_are_masked_by_format(self):
        body = ["2026-01-31T12:00:00.000000", "2026-01-31T12:00:00"]
        self.assertEqual(["<time>", "<time in seconds>"], normalised(body)["body"])

    def test_order_of_query_parameters_is_ignored(self):
        bodies = ({"href": "http://h/v3/x?a=1&b=2"}, {"href": "http://h/v3/x?b=2&a=1"})
        self.assertEqual(*map(normalised, bodies))

    def test_order_of_attachments_is_ignored(self):
        bodies = ([{"id": "a"}, {"id": "b"}], [{"id": "b"}, {"id": "a"}])
        self.assertEqual(*(normalised({"volume": {"attachments": body}}) for body in bodies))
        self.assertEqual(*(normalised({"volumes": [{"attachments": body}]}) for body in bodies))

    def test_error_messages_are_masked_only_in_faults(self):
        fault = {"code": 404, "message": "Nothing."}
        self.assertEqual(
            {"itemNotFound": {"code": 404, "message": "<words>"}},
            normalised({"itemNotFound": fault})["body"],
        )
        self.assertEqual({"message": "mine"}, normalised({"message": "mine"})["body"])

    def test_lists_are_reduced_to_selected_items(self):
        body = {"types": [{"name": "a"}, {"name": "b"}]}
        left = normalised(body, only={"types": {"name": ["b"]}})["body"]
        self.assertEqual({"types": [{"name": "b"}]}, left)


class DifferencesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.found = differences.between(
            "volumes/life/show",
            {"status": 200, "body": {"volume": {"name": "n", "size": 1}}},
            {"status": 200, "body": {"volume": {"name": "n", "size": 2, "extra": []}}},
        )

    def known(self, *entries, waiting=()):
        (self.folder / "known_differences.yaml").write_text(yaml.safe_dump(list(entries)))
        (self.folder / "not_built_yet.yaml").write_text(yaml.safe_dump({"f": list(waiting)}))
        return differences.Known(self.folder)

    def test_differences_are_found_by_path(self):
        self.assertEqual(
            [("body.volume.extra", "<absent>", []), ("body.volume.size", 1, 2)],
            [(item.place, item.cinder, item.attachd) for item in self.found],
        )

    def test_values_of_different_types_differ(self):
        for theirs, ours in ((1, True), (0, 0.0), (0, False), ("", None)):
            pair = ({"status": 200, "body": [item]} for item in (theirs, ours))
            self.assertEqual(1, len(differences.between("r", *pair)))

    def test_different_status_is_the_only_difference(self):
        pair = ({"status": 200, "body": 1}, {"status": 400, "body": 2})
        self.assertEqual(["status"], [item.place for item in differences.between("r", *pair)])

    def test_lists_of_different_lengths_differ_as_a_whole(self):
        pair = ({"status": 200, "body": [1]}, {"status": 200, "body": [1, 2]})
        self.assertEqual(["body"], [item.place for item in differences.between("r", *pair)])

    def test_unlisted_differences_are_unknown(self):
        self.assertEqual(self.found, self.known().unknown(self.found))

    def test_entry_explains_only_its_paths(self):
        entry = {"requests": "volumes/*", "at": "body.volume.size", "because": "b"}
        self.assertEqual(self.found[:1], self.known(entry).unknown(self.found))

    def test_entry_with_answer_requires_that_answer(self):
        entry = {"requests": "*", "at": "body.*", "attachd": 3, "because": "b"}
        self.assertEqual(self.found, self.known(entry).unknown(self.found))

    def test_entry_with_unneeded_part_is_reported(self):
        entry = {"requests": ["*", "types/*"], "at": ["body.*", "status"], "because": "b"}
        known = self.known(entry)
        self.assertEqual([], known.unknown(self.found))
        self.assertEqual(["types/*", "status"], [item.split(",")[0] for item in known.unneeded()])

    def test_entry_without_reason_is_reported(self):
        known = self.known({"requests": "*", "at": "*", "because": " "})
        self.assertEqual(1, len(known.unexplained))

    def test_requests_listed_as_not_built_may_differ(self):
        self.assertEqual([], self.known(waiting=["volumes/*"]).unknown(self.found))


class ScenariosTest(unittest.TestCase):
    def load(self, text):
        with tempfile.TemporaryDirectory(prefix="attachd-test-") as folder:
            Path(folder, "nouns.yaml").write_text(text)
            (scenario,) = scenarios.load(Path(folder))
        return scenario.requests

    def test_versions_and_callers_are_combined(self):
        text = "s: [{id: a, GET: /, at: [3.10, null, 'x 1.0'], as: [admin, reader]}]"
        found = self.load(text)
        self.assertEqual(6, len(found))
        self.assertEqual(("nouns/s/a@3.10+reader", "volume 3.10"), (found[1].id, found[1].version))
        self.assertEqual([None, "x 1.0"], [found[2].version, found[4].version])

    def test_unknown_keys_and_duplicate_ids_are_refused(self):
        for text in ("s: [{id: a, GET: /, who: me}]", "s: [{id: a, GET: /}, {id: a, PUT: /}]"):
            with self.assertRaises(ValueError):
                self.load(text)


class RecordingTest(unittest.TestCase):
    def test_saved_recording_is_loaded_unchanged(self):
        answers = {"n/s/a": {"status": 200, "body": ["ü"]}, "n/s/b": {"status": 404}}
        answers["n/s/c"] = answers["n/s/a"]
        with tempfile.TemporaryDirectory(prefix="attachd-test-") as folder:
            recording.save("n", answers, Path(folder))
            self.assertEqual(answers, recording.load(Path(folder)))
            self.assertIn('{"as": "n/s/a"}', Path(folder, "n.json").read_text())


class Silent(simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


class OverHttpTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = api = test_recorded_answers.serve(self)
        server = simple_server.make_server("127.0.0.1", 0, api.application, handler_class=Silent)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def run_tool(self, *arguments):
        tool = Path(attachd.__file__).parent.parent / "tools" / "compare_answers.py"
        if not tool.is_file():
            self.skipTest("tools/ is not installed with the package")
        return processes.run([sys.executable, tool, *arguments])

    def test_answers_over_http_equal_those_of_application(self):
        (scenario,) = (item for item in scenarios.load() if item.id == "metadata/metadata")
        inside = test_recorded_answers.player(self.api)
        outside = Player(over_http.asking(self.url), self.url)
        self.assertEqual(inside.play(scenario), outside.play(scenario))

    def test_compare_command_reports_no_unknown_difference(self):
        done = self.run_tool("compare", self.url, "--only", "versions/extensions")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(" 0 not known", done.stdout)

    def test_record_command_writes_recording(self):
        with tempfile.TemporaryDirectory(prefix="attachd-test-") as folder:
            done = self.run_tool(
                "record", self.url, "--only", "versions/project", "--folder", folder
            )
            self.assertEqual(0, done.returncode, done.stderr)
            ids = recording.load(Path(folder)).keys()
        self.assertTrue(ids)
        self.assertEqual({"versions/project-in-the-url"}, {i.rpartition("/")[0] for i in ids})
