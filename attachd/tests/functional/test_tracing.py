# SPDX-License-Identifier: Apache-2.0
"""Tests of following one request from the client to a driver's tool, in logs and in traces."""

import json
import re
import time
import uuid

import testtools

from attachd.tests.fixtures import deployments, requirements, tgtd, trace_collector
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

THEIRS = f"req-{uuid.uuid4()}"
HEADERS = {"X-OpenStack-Request-ID": THEIRS}

CONFIGURATION = """\
[DEFAULT]
use_json = true
debug = true

[oslo_middleware_tracing]
enabled = true
otlp_endpoint = {collector}

[oslo_reports]
file_event_handler = {trigger}

[shelf]
driver = tgt
"""


@full_only("deployments")
class ObservedTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        requirements.require_release(self, "oslo.messaging", "18.3")
        target = self.useFixture(tgtd.Tgtd(self))
        self.collector = trace_collector.TraceCollector(self)
        self.deployment = deployments.Deployment(self, "mariadb", "shelf", workers=1)
        self.trigger = self.deployment.folder / "report"
        self.trigger.touch()
        text = CONFIGURATION.format(collector=self.collector.url, trigger=self.trigger)
        lines = [text, *(f"{name} = {value}" for name, value in target.options.items())]
        self.deployment.configure("\n".join(lines))
        self.manager = self.deployment.start_manager()
        self.server = self.deployment.start_gunicorn()
        for item in (self.manager, self.server):
            item.show_in_failures(self)

    def attach(self):
        """Attach a new volume; returns the id of the request and the secret of the connection."""
        connector = {"host": "here", "initiator": "iqn.2026-01.test:here"}
        volume = self.deployment.api.create_volume()
        body = {"attachment": {"volume_uuid": volume, "connector": connector}}
        answer = self.deployment.api.request("POST", "/attachments", body, HEADERS)
        self.assertEqual(200, answer.status, answer)
        data = answer.body["attachment"]["connection_info"]
        return answer.headers["x-openstack-request-id"], data["auth_password"]

    def records(self, process):
        """Return what a process has logged, all of which has to be JSON."""
        # gunicorn has a log of its own, and so have messages from before the logging setup.
        foreign = re.compile(r"\[\d{4}-\d\d-\d\d ")
        lines = [line for line in process.output.splitlines() if line and not foreign.match(line)]
        return [json.loads(line) for line in lines]

    def test_trace_of_one_request_spans_all_processes(self):
        ours, secret = self.attach()
        self.check_logs(ours, secret)

        def of_it():
            spans = self.collector.spans
            for span in spans:
                if (
                    span.facts.get("openstack.request_id") == ours
                    and span.service == "attachd-api"
                ):
                    return {found.name: found for found in spans if found.trace == span.trace}
            return {}

        wanted = {
            "POST /attachments",
            "attachd-manager.attach",
            "attach receive",
            "flow attach",
            "grant",
        }
        wait_until(lambda: wanted <= set(of_it()))
        found = of_it()
        chain = [found["grant"]]
        by_id = {item.id: item for item in found.values()}
        while chain[-1].parent in by_id:
            chain.append(by_id[chain[-1].parent])
        self.assertEqual("POST /attachments", chain[-1].name)
        self.assertLessEqual(wanted, {item.name for item in chain})
        self.assertEqual("attachd-manager", found["grant"].service)
        self.assertEqual(THEIRS, chain[-1].facts["openstack.global_request_id"])
        self.assertNotIn(secret, repr(self.collector.spans))
        time.sleep(0.05)  # timestamps of file systems have a limited resolution
        self.trigger.touch()
        for process, sections in (
            (self.manager, ("Threads by name", "Database", "Backends", "Volume locks")),
            (self.server, ("Threads by name", "Database")),
        ):
            process.wait_for(rf"=+ +{sections[-1]} +=+\n=+\n.*\n")
            text = process.output
            for section in ("Package", "Threads", "Configuration", *sections):
                self.assertRegex(text, rf"=+ +{section} +=+")
            for hidden in (secret, "guest:guest", self.deployment.database):
                self.assertNotIn(hidden, text)
        self.assertIn("test@shelf (TgtDriver): ready", self.manager.output)

    def check_logs(self, ours, secret):
        for process, names in (
            (self.server, {"attachd.api.app"}),
            (self.manager, {"attachd.manager.flow_runner"}),
        ):
            self.assertNotIn(secret, process.output)
            of_it = [
                record
                for record in self.records(process)
                if (record.get("context") or {}).get("request_id") == ours
            ]
            known = {item["context"].get("global_request_id") for item in of_it}
            found = {item["name"] for item in of_it}
            for name in names:
                self.assertTrue(any(item.startswith(name) for item in found), (name, found))
            self.assertEqual({THEIRS}, known)
