# SPDX-License-Identifier: Apache-2.0
"""Tests of calls on a volume while it is cloned; none of them waits for the clone."""

import threading

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import TIMEOUT, wait_until


class CopiesTest(ApiCase):
    def setUp(self):
        super().setUp()
        self.started, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)

        def script(call):
            if call.method == "clone":
                self.started.set()
                self.go_on.wait(TIMEOUT)

        self.driver.script = script
        self.source = self.create(size=1)
        self.wait_for(self.source, "available")

    def create(self, **wanted):
        return self.expect(202, "POST", "/volumes", {"volume": wanted}).body["volume"]["id"]

    def status(self, volume_id):
        return self.api.request("GET", f"/volumes/{volume_id}").body["volume"]["status"]

    def wait_for(self, volume_id, status):
        wait_until(lambda: self.status(volume_id) == status)

    def copy(self, **wanted):
        copy = self.create(source_volid=self.source, **wanted)
        self.assertTrue(self.started.wait(TIMEOUT))
        return copy

    def test_clone_in_progress_allows_attach_detach_and_extend_of_source(self):
        copy = self.copy()
        attachment = self.create_attachment(self.source, connector={"host": "compute-1"})
        self.assertEqual(200, self.api.request("DELETE", f"/attachments/{attachment}").status)
        self.act(self.source, "os-extend", {"new_size": 2})
        self.wait_for(self.source, "available")
        self.assertEqual("creating", self.status(copy))
        self.go_on.set()
        self.wait_for(copy, "available")

    def test_clone_in_progress_delays_delete_of_source(self):
        copy = self.copy()
        for options in ({}, {"token": wsgi_api.ADMIN}):
            path = f"/volumes/{self.source}" + ("?force=true" if options else "")
            answer = self.api.request("DELETE", path, **options)
            self.assertEqual(400, answer.status)
            self.assertIn(f"copied to volume {copy}", answer.fault)
        self.go_on.set()
        self.wait_for(copy, "available")
        self.assertEqual(202, self.api.request("DELETE", f"/volumes/{self.source}").status)
        self.assertEqual(self.source, self.show(copy)["source_volid"])

    def show(self, volume_id):
        return self.api.request("GET", f"/volumes/{volume_id}").body["volume"]

    def test_clones_in_progress_do_not_delay_attaches(self):
        copies = [self.create(source_volid=self.source) for _ in range(30)]
        self.assertTrue(self.started.wait(TIMEOUT))
        self.create_attachment(self.source, connector={"host": "compute-1"})
        self.assertEqual({"creating"}, {self.status(copy) for copy in copies})
        self.go_on.set()
        for copy in copies:
            self.wait_for(copy, "available")

    def test_clone_in_progress_can_be_force_deleted(self):
        copy = self.copy()
        answer = self.api.request("DELETE", f"/volumes/{copy}?force=true", token=wsgi_api.ADMIN)
        self.assertEqual(202, answer.status, answer.raw)
        self.go_on.set()
        wait_until(lambda: self.api.request("GET", f"/volumes/{copy}").status == 404)
        self.assertNotIn(copy, self.api.backend.driver.sizes())
