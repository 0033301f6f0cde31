# SPDX-License-Identifier: Apache-2.0
"""Tests of quorum queues, configured as doc/source/admin/high-availability.rst says."""

import unittest
from urllib import parse

from attachd.tests.fixtures import guides, processes, requirements, sdk
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

GUIDE = processes.ROOT / "doc/source/admin/high-availability.rst"


@full_only("outages")
class QuorumQueuesTest(unittest.TestCase):
    def queues(self, deployment):
        """Return type and arguments of each queue by its name, asked as the guide does."""
        (command,) = next(
            parse_block.commands
            for parse_block in guides.parse_blocks(GUIDE)
            if parse_block.readers == "queues"
        )
        lines = deployment.broker_lines(command)
        return dict(line.split("\t") for line in lines)

    def test_quorum_queues_carry_all_volume_calls(self):
        deployment = _Deployment(self, "mariadb")
        (block,) = (item for item in guides.parse_blocks(GUIDE) if item.readers == "quorum")
        options = block.text[block.text.index("[oslo_messaging_rabbit]") :]
        self.assertIn("rabbit_quorum_queue = true", options)
        self.assertIn("rabbit_transient_quorum_queue = true", options)
        deployment.configure(options)
        manager = deployment.start_manager()
        server = deployment.start_gunicorn()
        deployment.wait_until_served()
        storage = sdk.block_storage(self, deployment.url)
        volume = storage.create_volume(name="disk", size=1)
        volume = storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        attachment = storage.create_attachment(volume.id, connector={"host": "one"})
        self.assertTrue(attachment.connection_info["device_path"])
        kinds = self.queues(deployment)
        calls = {name: kind for name, kind in kinds.items() if name.startswith("attachd-manager")}
        answers = {name: kind for name, kind in kinds.items() if name.startswith("reply_")}
        self.assertEqual({"quorum"}, set(calls.values()) - {"stream"}, kinds)
        self.assertEqual({"quorum"}, set(answers.values()), kinds)
        storage.delete_attachment(attachment)
        storage.delete_volume(volume)
        storage.wait_for_delete(volume, interval=0.1, wait=TIMEOUT)
        self.assertEqual((0, 0), (server.end(), manager.end()))
        for process in (server, manager):
            self.assertNotIn("Traceback", process.output)


class _Deployment(Deployment):
    """A deployment whose virtual host can be looked at."""

    def broker_lines(self, command):
        """Run ``rabbitmqctl`` for the virtual host; returns its lines without the heading."""
        text = (self.folder / "attachd.conf").read_text(encoding="utf-8")
        (url,) = (
            line.partition(" = ")[2]
            for line in text.splitlines()
            if line.startswith("transport_url")
        )
        tool, *words = command.split()
        words[words.index("-p") + 1] = parse.urlsplit(url).path.strip("/")
        control = requirements.require_tool(self._test, tool)
        return processes.check_output([control, "-q", "--no-table-headers", *words]).splitlines()
