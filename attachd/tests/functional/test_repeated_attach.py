# SPDX-License-Identifier: Apache-2.0
"""Tests of the stock commands for a volume that has several attachments."""

import json
import re

from attachd.tests.functional import test_clients as commands
from attachd.tests.functional.test_clients import UUID
from attachd.tests.selection import full_only

SERVERS = [f"{number * 8}-2222-4333-8444-555555555555" for number in "123"]


@full_only("clients")
class Case(commands.Case):
    def setUp(self):
        super().setUp()
        self.shell(
            """
            openstack volume type create --multiattach shared
            openstack volume create --type shared --size 1 disk; wait_for available
            """
        )
        said = self.shell(
            "\n".join(
                f"cinder --os-volume-api-version 3.44 attachment-create disk {server}"
                for server in SERVERS
            )
        )
        self.attachment_ids = re.findall(rf"\| id +\| ({UUID})", said)
        self.assertEqual(len(SERVERS), len(self.attachment_ids), said)
        self.shell(
            "\n".join(
                f"openstack volume attachment set {attachment} --host node-{attachment[:4]} "
                f"--mountpoint /dev/vd{letter}\n"
                f"openstack volume attachment complete {attachment}"
                for attachment, letter in zip(self.attachment_ids, "bcd", strict=True)
            )
        )


class OpenStackCommandTest(Case):
    def test_openstack_command_shows_each_of_three_attached_servers(self):
        shown = json.loads(self.shell("openstack volume show disk -f json"))
        self.assertEqual("in-use", shown["status"])
        self.assertEqual(SERVERS, [attachment["server_id"] for attachment in shown["attachments"]])
        self.assertEqual(
            self.attachment_ids,
            [attachment["attachment_id"] for attachment in shown["attachments"]],
        )
        self.assertNotIn("attachment_count", shown)
        (listed,) = json.loads(self.shell("openstack volume list -f json"))
        self.assertEqual(SERVERS, [item["server_id"] for item in listed["Attached to"]])
        result = self.shell("openstack volume list -f value -c 'Attached to'")
        for server, letter in zip(SERVERS, "bcd", strict=True):
            self.assertRegex(result, rf"{server}.*/dev/vd{letter}")
        self.shell(f"openstack volume attachment delete {self.attachment_ids[1]}")
        shown = json.loads(self.shell("openstack volume show disk -f json"))
        left = [SERVERS[0], SERVERS[2]]
        self.assertEqual(left, [attachment["server_id"] for attachment in shown["attachments"]])


class CinderCommandTest(Case):
    def test_cinder_command_shows_each_of_three_attached_servers(self):
        shown = self.shell("cinder show disk")
        (servers,) = re.findall(r"\| attached_servers +\| (.*?) +\|", shown)
        (attachments,) = re.findall(r"\| attachment_ids +\| (.*?) +\|", shown)
        self.assertEqual(SERVERS, re.findall(UUID, servers))
        self.assertEqual(self.attachment_ids, re.findall(UUID, attachments))
        listed = self.shell("cinder list")
        self.assertRegex(listed, ",".join(SERVERS))
