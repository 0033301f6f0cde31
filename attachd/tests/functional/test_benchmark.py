# SPDX-License-Identifier: Apache-2.0
"""Tests of the figures of the benchmark, with a stub server and with attachd."""

from collections import Counter
import http.server
import json
from pathlib import Path
import re
import statistics
import sys
import tempfile
import threading
import unittest

import attachd
from attachd.tests.fixtures import processes
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

FOLDER = Path(attachd.__file__).parents[1] / "benchmarks"
BENCHMARK = FOLDER / "attach_cycle.py"

_CYCLE = {
    ("POST", "/v3/attachments"): "reserve",
    ("PUT", "/v3/attachments/a"): "connect",
    ("POST", "/v3/attachments/a/action"): "complete",
    ("DELETE", "/v3/attachments/a"): "detach",
}


class _StandIn(http.server.BaseHTTPRequestHandler):
    """Answers like the API, as far as the benchmark looks, and counts what it is asked."""

    protocol_version = "HTTP/1.1"

    def _answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        call = _CYCLE.get((self.command, self.path))
        with self.server.lock:
            self.server.asked[call or self.path] += 1
            asked = self.server.asked[call or self.path]
        if call is not None and self.server.refuse(call, asked):
            self._send(409, {"conflictingRequest": {"code": 409, "message": "no"}})
        elif call == "complete":
            self._send(204, None)
        elif call == "reserve":
            self._send(200, {"attachment": {"id": "a"}})
        elif self.path.startswith("/v3/volumes"):
            self._answer_about_volume(self.path.removeprefix("/v3/volumes").strip("/"))
        else:
            self._send(200, {"attachments": []})

    def _answer_about_volume(self, name):
        volumes = self.server.volumes
        if self.command == "POST":
            name = f"v{len(volumes)}"
            volumes.append(name)
        if name not in volumes:
            self._send(404, {})
            return
        if self.command == "DELETE":
            volumes[volumes.index(name)] = "gone"
        self._send(200, {"volume": {"id": name, "status": "available"}})

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815  the base class's names

    def _send(self, status, content):
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        if content is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@full_only("clients")
class BenchmarkTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        if not BENCHMARK.is_file():
            self.skipTest("installed without the benchmarks")
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        self.addCleanup(folder.cleanup)
        self.json = Path(folder.name) / "result.json"

    def _serve(self, refuse=lambda _call, _count: False):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _StandIn)
        server.daemon_threads = True
        server.lock, server.asked, server.volumes = threading.Lock(), Counter(), []
        server.refuse = refuse
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, f"http://127.0.0.1:{server.server_port}/v3"

    def _run(self, *arguments, status=0, command=BENCHMARK):
        done = processes.run(
            [sys.executable, "-W", "ignore", str(command), *arguments], timeout=2 * TIMEOUT
        )
        self.assertEqual(status, done.returncode, done.stdout + done.stderr)
        return done

    def _measure(self, *arguments, status=0):
        done = self._run("--json", str(self.json), *arguments, status=status)
        return done.stdout, json.loads(self.json.read_text(encoding="utf-8"))

    def _measure_until(self, enough, *arguments, warmup=False):
        """Measure a stand-in, anew and for longer where too little comes of it."""
        for seconds in (0.3, 3, 30, 300):
            server, url = self._serve()
            before = f"{seconds if warmup else 0}"
            table, content = self._measure(
                *("--endpoint", url, "--seconds", f"{seconds}", "--warmup", before), *arguments
            )
            if enough(server, content["results"]):
                break
        return server, table, content

    def test_benchmark_help_lists_what_it_starts(self):
        self.assertIn("Nothing is started unless", self._run("--help").stdout.replace("\n", " "))

    def test_benchmark_without_arguments_measures_nothing(self):
        self.assertIn("--endpoint", self._run(status=2).stderr)

    def test_benchmark_prints_the_number_of_cycles_of_the_server(self):
        server, table, content = self._measure_until(
            lambda _server, results: min(result["cycles"] for result in results),
            *("--clients", "1,2"),
        )
        cycles = [result["cycles"] for result in content["results"]]
        self.assertEqual([1, 2], [result["clients"] for result in content["results"]])
        self.assertGreater(min(cycles), 0)
        for call in _CYCLE.values():
            self.assertEqual(sum(cycles), server.asked[call], call)
        shown = re.findall(r"^(\d) +(\d+) +[\d.]+ +[\d.]+/", table, re.MULTILINE)
        self.assertEqual([("1", str(cycles[0])), ("2", str(cycles[1]))], shown)
        for result in content["results"]:
            self.assertAlmostEqual(
                result["cycles"] / result["seconds"], result["cycles_per_second"], delta=0.5
            )

    def test_benchmark_does_not_count_warm_up_cycles(self):
        server, _table, content = self._measure_until(
            lambda server, results: results[0]["cycles"] < server.asked["detach"],
            *("--clients", "1"),
            warmup=True,
        )
        self.assertLess(content["results"][0]["cycles"], server.asked["detach"])

    def test_benchmark_omits_figures_that_it_cannot_count(self):
        _server, url = self._serve()
        _table, content = self._measure(
            *("--endpoint", url, "--clients", "1", "--seconds", "0.1", "--warmup", "0")
        )
        self.assertEqual({}, content["results"][0]["per_cycle"])
        self.assertIn("not counted", content["how"]["sql statements"])

    def test_benchmark_reports_refused_cycles_separately(self):
        server, url = self._serve(lambda call, count: call == "connect" and count % 2 == 1)
        table, content = self._measure(
            *("--endpoint", url, "--clients", "1", "--seconds", "0.4", "--warmup", "0"),
            status=1,
        )
        result = content["results"][0]
        refused = sum(result["errors"].values())
        self.assertGreater(refused, 0)
        self.assertEqual(server.asked["reserve"], result["cycles"] + refused)
        self.assertIn("connect: 409", table)

    def test_benchmark_machine_speed_is_the_median_of_samples(self):
        speed = FOLDER / "machine_speed.py"
        out = self._run("--rounds", "1", "--json", str(self.json), command=speed).stdout
        content = json.loads(self.json.read_text(encoding="utf-8"))
        times = [result["measured"] / result["reference"] for result in content["results"]]
        self.assertEqual(statistics.median(times), content["median"])
        self.assertGreater(min(times), 0)
        for name in ("versionedobjects", "pecan", "taskflow"):
            self.assertIn(name, out)
        self.assertIn(f" {content['median']:.2f}\n", out)

    def test_driver_latency_shows_each_driver_or_why_not(self):
        drivers = ("--drivers", "fake,file,lvm", "--seconds", "0.2", "--warmup", "0")
        command = FOLDER / "driver_latency.py"
        out = self._run(*drivers, "--json", str(self.json), command=command).stdout
        content = json.loads(self.json.read_text(encoding="utf-8"))
        shown = [(row["driver"], row["clients"]) for row in content["rows"]]
        self.assertEqual([("fake", 1), ("fake", 16), ("file", 1), ("file", 16)], shown)
        for row in content["rows"]:
            # Each thread grants at least once, and is not counted before the others begin.
            self.assertGreaterEqual(row["grant"]["samples"], row["clients"])
            self.assertLessEqual(row["grant"]["p50"], row["grant"]["p95"])
        self.assertRegex(out, r"file +16 +[\d.]+ +[\d.]+ +- +-\n")
        self.assertIn("lvm: skipped, it needs a kernel", out)

    def test_driver_latency_without_any_driver_exits_with_message(self):
        command = FOLDER / "driver_latency.py"
        self.assertIn("lvm", self._run("--drivers", "lvm", status=2, command=command).stderr)
        error = self._run("--drivers", "unknown", status=2, command=command).stderr
        self.assertIn("unknown is none of fake, file", error)

    def test_benchmark_median_without_samples_is_refused(self):
        done = self._run("--rounds", "0", status=2, command=FOLDER / "machine_speed.py")
        self.assertIn("must be 1 or more", done.stderr)

    def test_benchmark_without_broker_exits_with_message(self):
        no_role = "rabbit://unknown:secret@127.0.0.1:1/missing"
        done = self._run(
            *("--rounds", "1", "--rabbit", no_role), status=2, command=FOLDER / "machine_speed.py"
        )
        self.assertIn("No empty call could be made", done.stderr)
