# SPDX-License-Identifier: Apache-2.0
"""Tests of notifying Compute of volumes that grow, with managers that are killed and a Compute
that is slow, silent or wrong.
"""

import threading

import testtools

from attachd.tests.fixtures import deployments, fake_nova
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

SERVER = deployments.reservation_body("")["attachment"]["instance_uuid"]
EVENTS = "/v2.1/os-server-external-events"


@full_only("deployments")
class ComputeEventsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.nova = fake_nova.FakeNova(self)
        self.nova.add_server(SERVER)
        # A claim ends when an attempt cannot last longer: after 5 + 4 * 1 seconds.
        self.deployment = deployments.ProxiedDeployment(
            self,
            "mariadb",
            settings=f"[nova]\nendpoint_override = {self.nova.url}\nauth_type = none\n"
            "connect_timeout = 0.5\nread_timeout = 0.5",
        )
        self.manager = self.deployment.start_manager()
        self.manager.show_in_failures(self)
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.volume = self.attach()

    def attach(self):
        volume = self.deployment.create_volume()
        attachment = self.deployment.reserve(volume)
        self.assertEqual(200, self.deployment.connect(attachment).status)
        path = f"/attachments/{attachment}/action"
        self.assertEqual(204, self.request("POST", path, {"os-complete": None}).status)
        return volume

    def request(self, *call):
        return self.deployment.request(*call)

    def extend(self, size):
        path = f"/volumes/{self.volume}/action"
        self.assertEqual(202, self.request("POST", path, {"os-extend": {"new_size": size}}).status)
        wait_until(lambda: self.shown() == ("in-use", size), self.shown)

    def shown(self):
        volume = self.request("GET", f"/volumes/{self.volume}").body["volume"]
        return volume["status"], volume["size"]

    def tags(self):
        return [event["tag"] for event in self.nova.events]

    def posts(self):
        return [path for path, _headers in self.nova.requests if path == EVENTS]

    def messages(self):
        return [item["user_message"] for item in self.request("GET", "/messages").body["messages"]]

    def test_extend_notifies_compute_at_once_and_once(self):
        self.extend(2)
        wait_until(lambda: self.tags() == [self.volume])
        self.extend(3)
        wait_until(lambda: self.tags() == [self.volume] * 2)
        self.assertEqual((2, []), (len(self.posts()), self.messages()))

    def test_event_that_killed_manager_has_sent_is_sent_again_by_the_next(self):
        reached, released = threading.Event(), threading.Event()
        self.addCleanup(released.set)

        def hold(path):
            if path == EVENTS:
                reached.set()
                released.wait(TIMEOUT)

        self.nova.before_response = hold
        self.extend(2)
        self.assertTrue(reached.wait(TIMEOUT))
        self.manager.kill()
        self.nova.before_response = lambda _path: None
        released.set()
        sent = len(self.posts())
        self.deployment.start_manager().show_in_failures(self)
        wait_until(lambda: len(self.posts()) > sent and self.volume in self.tags(), self.tags)

    def test_extend_does_not_wait_for_silent_compute(self):
        # Twice as long as the manager waits for an answer.
        self.nova.before_response = lambda path: path == EVENTS and threading.Event().wait(1.0)
        self.extend(2)
        wait_until(self.posts)
        self.nova.before_response = lambda _path: None
        wait_until(lambda: self.volume in self.tags(), self.tags)
        self.assertEqual([], self.messages())

    def test_event_with_wrong_answers_is_repeated_until_compute_accepts_it(self):
        answers = [(200, b"{"), (207, b"[]"), (500, b"x" * 100_000)]

        def answer(path):
            if path == EVENTS:
                self.nova._instead_of.clear()
                if answers:
                    self.nova.respond_to(EVENTS, *answers.pop())

        self.nova.before_response = answer
        self.extend(2)
        wait_until(lambda: self.tags() == [self.volume], self.posts)
        self.assertEqual((4, []), (len(self.posts()), self.messages()))

    def test_event_that_compute_refuses_leaves_message_to_user(self):
        self.nova.servers.clear()
        self.extend(2)
        wait_until(self.messages)
        (message,) = self.messages()
        self.assertRegex(
            message, f"^extend volume:.* to server {SERVER}: it does not know the server"
        )
        self.assertEqual(1, len(self.posts()))
