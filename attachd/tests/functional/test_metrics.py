# SPDX-License-Identifier: Apache-2.0
"""Tests of the metrics, the dashboard and the alert rules with real processes."""

from collections.abc import Iterator
import json
import os
import re
import shutil
import signal

import requests
import testtools
import yaml

from attachd.telemetry import metrics
from attachd.tests.fixtures import deployments, lifetime, metric_samples, processes, requirements
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

ETC = processes.ROOT / "etc" / "attachd"

CONFIGURATION = """\
[metrics]
enabled = true
api_port = {port}
manager_port = 0
count_interval = 1

[healthy]
driver = fake

[broken]
driver = fake
fake_fail = revoke
"""

NOT_OURS = frozenset({"job", "instance", "le"})
"""Labels that Prometheus adds, and that of a histogram's buckets."""


def expressions() -> Iterator[tuple[str, str]]:
    """Return all that the dashboard and the rules ask for, each with its name."""
    dashboard = json.loads((ETC / "grafana-dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")
    rules = yaml.safe_load((ETC / "alerts.yaml").read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]


def labels_of(expression: str) -> set[str]:
    """Return the labels that an expression of PromQL names."""
    matched = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expression)
    grouped = re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression)
    return {*matched, *(name.strip() for names in grouped for name in names.split(","))}


@full_only("deployments")
class NamesTest(testtools.TestCase):
    """Tests of the metrics of a service that has attached, detached and failed."""

    def setUp(self):
        super().setUp()
        self.deployment = deployments.Deployment(self, "mariadb", "healthy,broken", workers=1)
        text = CONFIGURATION.format(port=processes.free_port())
        self.deployment.configure(text)
        self.share_metrics("manager")
        self.manager = self.deployment.start_manager()
        self.manager.show_in_failures(self)
        self.share_metrics("api")
        self.server = self.deployment.start_uwsgi()
        self.server.show_in_failures(self)
        self.places = [
            process.wait_for(r"Metrics are at (http://\S+)")[1]
            for process in (self.server, self.manager)
        ]

    def share_metrics(self, service):
        """Have the processes that are started next export their metrics as one."""
        folder = self.deployment.folder / f"metrics-{service}"
        self.deployment.environment[metrics.FOLDER_VARIABLE] = str(folder)

    def cycle(self, backend):
        """Attach and detach a volume of one backend; returns the status of the detach."""
        specs = {"name": backend, "extra_specs": {"volume_backend_name": backend}}
        api = self.deployment.api
        api.request_json("POST", "/types", {"volume_type": specs})
        volume = api.create_volume(volume_type=backend)
        body = {"attachment": {"volume_uuid": volume, "connector": {"host": "here"}}}
        attachment = api.request_json("POST", "/attachments", body)["attachment"]
        return api.request("DELETE", f"/attachments/{attachment['id']}").status

    def scrape(self):
        texts = [requests.get(place, timeout=TIMEOUT).text for place in self.places]
        return {
            key: value
            for text in texts
            for key, value in metric_samples.parse_samples(text).items()
        }

    def test_metrics_of_all_documented_names_are_exported(self):
        self.assertEqual(200, self.cycle("healthy"))
        self.assertGreaterEqual(self.cycle("broken"), 400)
        wait_until(lambda: ("attachd_database_commits_total", frozenset()) in self.scrape())
        wait_until(lambda: self.sample("attachd_attachments", state="disconnect_failed") == 1.0)
        found = self.scrape()
        for name, labels, expected in (
            ("api_requests_total", {"method": "POST", "endpoint": "/attachments"}, 2.0),
            ("steps_total", {"step": "grant", "outcome": "ok"}, 2.0),
            ("steps_total", {"step": "revoke", "outcome": "ok"}, 1.0),
            ("rpc_calls_total", {"method": "detach", "outcome": "ok"}, 1.0),
            ("rpc_calls_total", {"method": "detach", "outcome": "refused"}, 1.0),
            ("served_total", {"method": "detach", "outcome": "failed"}, 1.0),
            ("backend_up", {}, 2.0),
            ("database_up", {}, 1.0),
            ("manager_processes", {}, 1.0),
        ):
            self.assertEqual(expected, self.sample(f"attachd_{name}", **labels), (name, labels))
        # Recovery repeats it.
        failed = {"step": "revoke", "outcome": "failed", "backend": "test@broken"}
        self.assertGreaterEqual(self.sample("attachd_steps_total", **failed), 1.0)
        # It takes time, or the death of a process, until there are actions of recovery.
        result = {"attachd_recovery_actions_total": {"backend", "action"}}
        for name, labels in found:
            result.setdefault(name, set()).update(label for label, _value in labels)
        for title, expression in expressions():
            names = set(re.findall(r"\battachd_\w+", expression))
            self.assertLessEqual(names, set(result), title)
            known = set().union(*(result[name] for name in names), NOT_OURS)
            self.assertLessEqual(labels_of(expression), known, title)
        # Kill the exporting worker: another one exports, and keeps its counts.
        before = self.sample("attachd_api_requests_total", endpoint="/attachments")
        telling = r"(\d+) INFO attachd.telemetry.exporter .* Metrics are at"
        os.kill(int(self.server.wait_for(telling)[1]), signal.SIGKILL)
        wait_until(lambda: len(re.findall(telling, self.server.output)) > 1)
        after = self.sample("attachd_api_requests_total", endpoint="/attachments")
        self.assertEqual(before, after)
        # Request the manager's state report, which needs the same manager.
        worker = int(self.manager.wait_for(r"(\d+) INFO attachd.manager.service .* Serving")[1])
        os.kill(worker, signal.SIGUSR2)
        self.manager.wait_for(r"(?s)Guru Meditation.*test@broken \(FakeDriver\): ready")
        self.assertEqual(0, self.manager.end())

    def sample(self, name, **labels):
        """Return the sum of what has these labels, among others."""
        wanted = set(labels.items())
        return sum(
            value for key, value in self.scrape().items() if key[0] == name and wanted <= key[1]
        )


class RulesTest(testtools.TestCase):
    """Prometheus itself reads the rules."""

    def setUp(self):
        super().setUp()
        self.tool = requirements.require_tool(self, "promtool")
        self.folder = lifetime.temp_dir(self)

    def promtool(self, *arguments):
        processes.check_output([self.tool, *arguments], cwd=self.folder)

    def test_alert_rules_fire_as_their_test_file_says(self):
        shutil.copy(ETC / "alerts.yaml", self.folder)
        shutil.copy(processes.ROOT / "attachd/tests/functional/alerts/story.yaml", self.folder)
        self.promtool("check", "rules", "alerts.yaml")
        self.promtool("test", "rules", "story.yaml")

    def test_alert_rule_expressions_parse(self):
        rules = [
            {"record": f"attachd:{number}", "expr": expression}
            for number, (_title, expression) in enumerate(expressions())
        ]
        self.assertGreater(len(rules), 30)
        text = yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]})
        (self.folder / "all.yaml").write_text(text, encoding="utf-8")
        self.promtool("check", "rules", "all.yaml")
