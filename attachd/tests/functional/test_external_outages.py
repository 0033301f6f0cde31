# SPDX-License-Identifier: Apache-2.0
"""Tests of outages of Keystone and Nova.

Keystone is a real one, behind a proxy that fails.
"""

import unittest
import uuid

from attachd.api import keystone as strategy
from attachd.tests.fixtures import (
    conf_fixture,
    fake_nova,
    keystone_api,
    keystone_fixture,
    tcp_proxy,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

SILENCE = 15
"""Seconds that Keystone and Compute may be silent here; long enough for one that is only slow."""


@full_only("outages")
class Case(unittest.TestCase):
    def assert_unavailable(self, answer, says):
        """Check for a 503; without timeouts there would be no response."""
        self.assertEqual(503, answer.status, answer.raw)
        self.assertRegex(answer.fault, says)
        self.assertEqual("5", answer.headers["retry-after"])


class KeystoneTest(Case):
    def setUp(self):
        super().setUp()
        self.keystone = keystone_fixture.shared(self)
        self.proxy, url = tcp_proxy.in_front_of(self, self.keystone.url)
        # The middleware logs in at auth_url, and validates at the catalogue's URL.
        self.addCleanup(self.keystone.endpoint, "identity", self.keystone.url)
        self.keystone.endpoint("identity", url)
        self.api = keystone_api.use(self, auth_url=url, http_connect_timeout=SILENCE)
        self.alice = self.keystone.user("alice", "member")

    def request(self, token=None):
        # A token that has not been validated yet, so that it is not cached.
        token = token or self.keystone.token(self.alice)
        return self.api.request("GET", "/volumes", token=token)

    def wait_until_it_works(self):
        """Return a token that is known then."""
        token = self.keystone.token(self.alice)
        wait_until(lambda: self.request(token).status == 200, lambda: self.request(token).raw)
        return token

    def test_keystone_outage_returns_503_and_ends_by_itself(self):
        for away in (self.proxy.refuse, self.proxy.freeze):
            self.wait_until_it_works()
            away()
            says = "^Keystone cannot validate the token .* later"
            self.assert_unavailable(self.request(), says)
            self.proxy.pass_on()
        self.wait_until_it_works()

    def test_keystone_outage_allows_cached_tokens(self):
        known = self.wait_until_it_works()
        self.proxy.freeze()
        self.assertEqual(200, self.api.request("GET", "/volumes", token=known).status)

    def test_keystone_timeouts_by_default_are_seconds(self):
        self.assertLessEqual(strategy.DEFAULT_OVERRIDES["http_connect_timeout"], 5)
        self.assertLessEqual(strategy.DEFAULT_OVERRIDES["http_request_max_retries"], 1)


class ComputeTest(Case):
    def setUp(self):
        super().setUp()
        self.api = keystone_api.use(self)
        self.compute = fake_nova.FakeNova(self)
        self.proxy, url = tcp_proxy.in_front_of(self, self.compute.url)
        for name in ("connect_timeout", "read_timeout"):
            conf_fixture.override(self, name, float(SILENCE), "nova")
        conf_fixture.override(self, "endpoint_override", url, "nova")
        self.token = self.api.keystone.token(self.api.keystone.user("alice", "member"))

    def used(self):
        """Return an attachment that a server of Compute uses, and its volume."""
        body = {"volume": {"size": 1}}
        volume = self.api.request("POST", "/volumes", body, token=self.token).body["volume"]["id"]
        wait_until(lambda: self.status(volume) == "available")
        server = str(uuid.uuid4())
        body = {"volume_uuid": volume, "instance_uuid": server, "connector": {"host": "one"}}
        made = self.api.request("POST", "/attachments", {"attachment": body}, token=self.token)
        identity = made.body["attachment"]["id"]
        self.compute.add_attachment(server, volume, identity)
        return identity, volume

    def status(self, volume):
        answer = self.api.request("GET", f"/volumes/{volume}", token=self.token)
        return answer.body["volume"]["status"]

    def delete(self, identity):
        return self.api.request("DELETE", f"/attachments/{identity}", token=self.token)

    def test_nova_outage_is_reported_and_ends_by_itself(self):
        identity, volume = self.used()
        before = self.status(volume)
        self.assertEqual(409, self.delete(identity).status)
        for away in (self.proxy.refuse, self.proxy.freeze):
            away()
            answer = self.delete(identity)
            says = "^Compute cannot be asked .* Nothing has been changed; try again later"
            self.assert_unavailable(answer, says)
            self.assertEqual(before, self.status(volume))
            self.proxy.pass_on()
            self.assertEqual(409, self.delete(identity).status)
