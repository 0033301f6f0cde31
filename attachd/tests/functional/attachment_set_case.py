# SPDX-License-Identifier: Apache-2.0
"""A test case for sets of attachments."""

from attachd.tests.functional.test_agents import AgentCase

VERSION = {"OpenStack-API-Version": "volume 3.71, attachd 1.1"}


class SetCase(AgentCase):
    """A host and four volumes per test."""

    def setUp(self):
        super().setUp()
        self.volumes = [self.volume, *(self.deployment.create_volume() for _ in range(3))]

    def attach_set(self, volumes, *, atomic, host=None, **headers):
        body = {
            "host": (host or self.host).name,
            "volumes": [{"volume_uuid": volume} for volume in volumes],
            "atomic": atomic,
        }
        return self.act({"attach_set": body}, **headers)

    def act(self, body, **headers):
        return self.deployment.request("POST", "/attachments/action", body, **VERSION, **headers)

    def results(self, answer):
        self.assertEqual(200, answer.status_code, answer.text)
        return answer.json()["results"]

    def detach_set(self, results):
        ids = [item["attachment_id"] for item in results]
        return self.results(self.act({"detach_set": {"attachments": ids}}))

    def assert_all_removed(self):
        for volume in self.volumes:
            self.deployment.wait_for_volume(volume, "available")
        self.assert_nothing_is_left()
