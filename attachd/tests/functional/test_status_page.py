# SPDX-License-Identifier: Apache-2.0
"""Tests of the status page in a browser, on an all-in-one with volumes in files."""

import unittest

from attachd.tests.fixtures import browser, tgtd
from attachd.tests.fixtures.deployments import AllInOne, shared_all_in_one
from attachd.tests.fixtures.http_client import Client

VERSION = "volume 3.71, attachd 1.1"

_TGT = """
[DEFAULT]
enabled_backends = tgt

[manager]
# Rows of other back ends and of agents are not renewed during a test.
service_down_time = 3600

[agent]
down_time = 600

{tgt}
driver = tgt
"""


class StatusPageCase(unittest.TestCase):
    """A live service and a browser.

    :ivar service: the all-in-one
    :ivar url: of the page
    :ivar api: a client, of all rights
    """

    def setUp(self):
        super().setUp()
        self.service = self.start()
        self.url = f"{self.service.url}/ui/"
        self.api = Client(f"{self.service.url}/v3", VERSION)
        self.browser = browser.Browser(self)

    def start(self):
        """Return the service."""
        return shared_all_in_one(self)

    def attach(self, host, **values):
        """Create a volume and attach it on a host; returns both ids."""
        volume = self.api.create_volume(**values)
        connector = {"host": host, "initiator": f"iqn.2026-01.test:{host}"}
        body = {"attachment": {"volume_uuid": volume, "connector": connector}}
        attachment = self.api.request_json("POST", "/attachments", body)["attachment"]["id"]
        self.api.request_json("POST", f"/attachments/{attachment}/action", {"os-complete": {}})
        return volume, attachment

    def assert_no_problems(self):
        """Check that the console shows neither an error nor a refusal by the policy."""
        found = self.browser.problems()
        # Of requests that the API has refused, which the page has shown.
        self.assertEqual([], [text for text in found if "Failed to load resource" not in text])


class TgtCase(StatusPageCase):
    """The storage is a tgtd, which proves fences.

    :ivar tgtd: the daemon
    """

    def start(self):
        self.tgtd = tgtd.Tgtd(self)
        self.tgtd.setUp()
        self.addCleanup(self.tgtd.cleanUp)
        return AllInOne.configured(self, _TGT.format(tgt=self.tgtd.configuration))


class SmokeTest(StatusPageCase):
    def test_page_shows_attachment_live_and_detaches_it(self):
        self.assertIn(f"Status page: {self.url}\n", self.service.output)
        page = self.browser
        page.open(self.url)
        page.wait_for("Nothing is wrong.")
        page.wait_for("Live", ".live")
        volume, attachment = self.attach("compute-7", name="data")
        page.wait_for("Attached", ".feed")
        page.click("Attachments", "nav")
        page.wait_for("compute-7", "table")
        page.click(attachment[:8], "table")
        page.wait_for("Host has access", ".timeline")
        page.click("Detach…")
        page.wait_for("No agent removes the device", "dialog")
        page.click("Detach", "dialog")
        page.wait_for("Done", "dialog")
        page.click("Close", "dialog")
        page.wait_for("Detached", ".timeline")
        self.assertEqual("available", self.api.status(volume))
        self.assert_no_problems()
