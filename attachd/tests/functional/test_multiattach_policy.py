# SPDX-License-Identifier: Apache-2.0
"""Tests of policies that deny and allow multiattach while the service runs.

While multiattach is denied there are no new multiattach volumes and no second attachments, and
existing attachments stay.
"""

import unittest

from attachd.tests.fixtures import http_client, lifetime
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.fixtures.http_client import Request
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

RULE = "volume:multiattach"
BOOTABLE = "volume:multiattach_bootable_volume"
SERVER = "{0}{0}{0}{0}{0}{0}{0}{0}-2222-4333-8444-555555555555"
ROUNDS = 15


@full_only("clients")
class Case(unittest.TestCase):
    rule = RULE

    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.policy = self.folder / "policy.yaml"
        configuration = self.folder / "more.conf"
        configuration.write_text(
            f"[file]\nfile_loop_devices = never\n[oslo_policy]\npolicy_file = {self.policy}\n"
        )
        process = AllInOne(self, self.folder / "state", f"--config-file={configuration}")
        self.api = http_client.Client(f"{process.url}/v3")
        for name, specs in (("plain", {}), ("shared", {"multiattach": "<is> True"})):
            body = {"volume_type": {"name": name, "extra_specs": specs}}
            self.api.request_json("POST", "/types", body)
        self.probe = self.create_volume()
        self.attach(self.probe, 9)

    def create_volume(self, kind="shared"):
        return self.api.create_volume(volume_type=kind)

    def switch(self, *rules):
        """Deny these rules for all callers, and wait until the policy is loaded."""
        new = self.folder / "new"
        new.write_text("".join(f"'{rule}': '!'\n" for rule in rules) or "{}\n")
        new.rename(self.policy)
        wait_until(lambda: self.is_denied() == (self.rule in rules))

    def is_denied(self):
        return self.reserve(self.probe, 8).status == 403

    def reserve(self, volume, server, **values):
        wanted = {"volume_uuid": volume, "instance_uuid": SERVER.format(server), **values}
        return self.api.request("POST", "/attachments", {"attachment": wanted})

    def reserved(self, volume, server, **values):
        answer = self.reserve(volume, server, **values)
        self.assertEqual(200, answer.status, answer)
        return answer.body["attachment"]["id"]

    def connect(self, attachment, host):
        body = {"attachment": {"connector": {"host": host}}}
        return self.api.request("PUT", f"/attachments/{attachment}", body)

    def connected(self, volume, server):
        return self.reserved(volume, server, connector={"host": f"node-{server}"})

    def complete(self, attachment):
        self.api.request_json("POST", f"/attachments/{attachment}/action", {"os-complete": {}})

    def attach(self, volume, server):
        attachment = self.connected(volume, server)
        self.complete(attachment)
        return attachment

    def delete(self, attachment):
        return self.api.request_json("DELETE", f"/attachments/{attachment}")["attachments"]

    def act(self, volume, action, **body):
        return self.api.request("POST", f"/volumes/{volume}/action", {f"os-{action}": body})

    def acted(self, volume, action, **body):
        answer = self.act(volume, action, **body)
        self.assertLess(answer.status, 300, answer)

    def initialize(self, volume, host):
        return self.act(volume, "initialize_connection", connector={"host": host})

    def assert_denied(self, answer):
        result = f"Policy doesn't allow {self.rule} to be performed."
        self.assertEqual((403, result), (answer.status, answer.message))

    def servers(self, volume):
        return sorted(
            attachment["server_id"][0] for attachment in self.api.volume(volume)["attachments"]
        )

    def assert_second_attach_refused(self, volume):
        """Try all calls that would add an attachment to an attached volume."""
        before = self.servers(volume), self.api.volume(volume)["status"]
        self.assert_denied(self.reserve(volume, 7))
        self.assert_denied(self.reserve(volume, 7, connector={"host": "node-7"}))
        self.assert_denied(self.act(volume, "reserve"))
        attachment = {"instance_uuid": SERVER.format(7), "mountpoint": "/dev/vdb"}
        self.assert_denied(self.act(volume, "attach", **attachment))
        self.assert_denied(self.initialize(volume, "node-7"))
        after = self.servers(volume), self.api.volume(volume)["status"]
        self.assertEqual(before, after)

    def assert_one_of_many_wins(self, volume):
        """Have several reserve a free volume at the same moment."""
        for number in range(ROUNDS):
            wanted = [
                Request(
                    "POST",
                    "/attachments",
                    {"attachment": {"volume_uuid": volume, "instance_uuid": SERVER.format(index)}},
                )
                for index in range(2 + number % 2)
            ]
            answers = self.api.request_at_once(wanted)
            winners = [
                answer.body["attachment"]["id"] for answer in answers if answer.status == 200
            ]
            self.assertEqual(1, len(winners), answers)
            for answer in answers:
                if answer.status != 200:
                    self.assert_denied(answer)
            self.assertEqual([], self.delete(winners[0]))

    def assert_the_first_one_may(self, volume):
        """Attach a free volume once, by either way, and detach it."""
        attachment = self.reserved(volume, 1)
        self.assertEqual(200, self.connect(attachment, "node-1").status)
        self.complete(attachment)
        self.assertEqual("in-use", self.api.volume(volume)["status"])
        self.assertEqual([], self.delete(attachment))
        self.acted(volume, "reserve")
        self.assertEqual(200, self.initialize(volume, "node-1").status)
        server = SERVER.format(1)
        self.acted(volume, "attach", instance_uuid=server, mountpoint="/dev/vdb")
        self.assertEqual(["1"], self.servers(volume))
        self.acted(volume, "terminate_connection", connector={"host": "node-1"})
        self.acted(volume, "detach")
        self.assertEqual("available", self.api.volume(volume)["status"])


class SwitchTest(Case):
    def test_policy_denying_multiattach_refuses_shared_volume(self):
        plain = self.create_volume("plain")
        self.switch(RULE)
        for wanted in ({"size": 1, "volume_type": "shared"}, {"source_volid": self.probe}):
            self.assert_denied(self.api.request("POST", "/volumes", {"volume": wanted}))
        self.assert_denied(self.act(plain, "retype", new_type="shared"))
        found = self.api.volume(plain)
        self.assertEqual(("plain", False), (found["volume_type"], found["multiattach"]))
        self.create_volume("plain")
        self.api.create_volume(source_volid=self.probe, volume_type="plain")
        self.switch()
        self.acted(plain, "retype", new_type="shared")
        self.create_volume("shared")

    def test_policy_denying_multiattach_refuses_second_attachment(self):
        by_the_newer = self.create_volume()
        self.attach(by_the_newer, 1)
        by_the_older = self.create_volume()
        self.acted(by_the_older, "reserve")
        self.initialize(by_the_older, "node-1")
        attachment = {"instance_uuid": SERVER.format(1), "mountpoint": "/dev/vdb"}
        self.acted(by_the_older, "attach", **attachment)
        self.switch(RULE)
        for volume in (by_the_newer, by_the_older):
            self.assert_second_attach_refused(volume)
        # A host that has it asks once more; a server that moves is no other one.
        self.assertEqual(200, self.initialize(by_the_older, "node-1").status)
        moved = self.reserved(by_the_newer, 1, connector={"host": "node-2"})
        self.complete(moved)
        self.assertEqual(["1", "1"], self.servers(by_the_newer))
        self.switch()
        self.attach(by_the_newer, 2)

    def test_policy_denying_multiattach_allows_one_attachment(self):
        volume = self.create_volume()
        self.switch(RULE)
        self.assert_the_first_one_may(volume)
        self.assert_one_of_many_wins(volume)
        # It may have got a type that shares nothing, and keep that.
        self.acted(volume, "retype", new_type="plain")
        self.assert_the_first_one_may(volume)

    def test_policy_denying_multiattach_keeps_existing_attachments(self):
        volume = self.create_volume()
        used, connected = self.attach(volume, 1), self.connected(volume, 2)
        reserved = self.reserved(volume, 3)
        before = self.api.request_json("GET", f"/attachments/{used}")
        self.switch(RULE)
        self.assertEqual(before, self.api.request_json("GET", f"/attachments/{used}"))
        self.assertEqual(200, self.connect(used, "node-1").status)
        self.assertEqual(200, self.connect(connected, "node-2").status)
        self.complete(connected)
        self.assertEqual(200, self.connect(reserved, "node-3").status)
        self.complete(reserved)
        self.assertEqual(["1", "2", "3"], self.servers(volume))
        for attachment, left in ((used, 2), (reserved, 1), (connected, 0)):
            self.assertEqual(left, len(self.delete(attachment)))
        self.assertEqual("available", self.api.volume(volume)["status"])


class BootableTest(Case):
    """The same rule for volumes that servers boot from."""

    rule = BOOTABLE

    def is_denied(self):
        self.acted(self.probe, "set_bootable", bootable=True)
        return super().is_denied()

    def bootable(self):
        volume = self.create_volume()
        self.acted(volume, "set_bootable", bootable=True)
        return volume

    def test_policy_denying_bootable_multiattach_refuses_second_attachment(self):
        volume, other = self.bootable(), self.create_volume()
        first = self.attach(volume, 1)
        self.attach(other, 1)
        self.switch(BOOTABLE)
        self.assert_second_attach_refused(volume)
        self.attach(other, 2)
        self.assertEqual(200, self.connect(first, "node-1").status)
        self.assertEqual([], self.delete(first))
        self.switch()
        self.attach(volume, 1)
        self.attach(volume, 2)

    def test_policy_denying_bootable_multiattach_allows_one_attachment(self):
        volume = self.bootable()
        self.switch(BOOTABLE)
        self.assert_the_first_one_may(volume)
        self.assert_one_of_many_wins(volume)
