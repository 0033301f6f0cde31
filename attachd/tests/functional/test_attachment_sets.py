# SPDX-License-Identifier: Apache-2.0
"""Tests of sets of attachments, over RabbitMQ, with tgtd and devices in user space."""

import os

from attachd.tests import concurrency
from attachd.tests.fixtures import agent_deployment, agent_fork_server
from attachd.tests.functional.attachment_set_case import SetCase
from attachd.tests.selection import full_only


@full_only("agents")
class AttachmentSetsTest(SetCase):
    def block(self, volume):
        """Have the host fail to attach a volume; return what ends that."""
        other = agent_deployment.AgentHost(self.deployment, self)
        other.start()
        answer = self.deployment.attach(volume, other.name)
        self.assertEqual(200, answer.status_code, answer.text)
        return lambda: self.deployment.detach(answer.json()["attachment"]["id"])

    def test_sets_are_attached_and_detached(self):
        self.host.start()
        for atomic in (False, True):
            results = self.results(self.attach_set(self.volumes, atomic=atomic))
            self.assertEqual(self.volumes, [item["volume_id"] for item in results])
            for item in results:
                self.assertEqual(("attached", None), (item["status"], item["error"]), item)
                path = f"{self.host.device(item['attachment_id'])}"
                self.assertEqual(path, item["device"])
            removed = self.detach_set(results)
            self.assertEqual([(None, None)] * 4, [(x["status"], x["error"]) for x in removed])
            self.assert_all_removed()

    def test_volume_of_another_host_is_refused_alone_or_with_the_whole_set(self):
        self.host.start()
        unblock = self.block(self.volume)
        results = self.results(self.attach_set(self.volumes, atomic=False))
        refused, *attached = results
        self.assertIsNone(refused["attachment_id"])
        self.assertEqual("attachd.volume_not_available", refused["error"]["reason_code"])
        self.assertEqual({"attached"}, {item["status"] for item in attached})
        self.detach_set(attached)
        answer = self.attach_set(self.volumes, atomic=True)
        self.assertEqual(400, answer.status_code, answer.text)
        self.assertIn(self.volume, answer.text)
        for volume in self.volumes[1:]:
            self.assertEqual("available", self.deployment.volume(volume)["status"])
        unblock()
        self.assert_all_removed()

    def test_set_beyond_the_limit_of_the_host_is_refused_as_a_whole(self):
        self.host.set("max_attachments = 3")
        self.host.start()
        answer = self.attach_set(self.volumes, atomic=True)
        self.assertEqual(409, answer.status_code, answer.text)
        self.assertIn("can take 3", answer.text)
        results = self.results(self.attach_set(self.volumes, atomic=False))
        statuses = [item["status"] for item in results]
        self.assertEqual(["attached"] * 3 + [None], statuses)
        self.assertEqual("attachd.host_limit_exceeded", results[3]["error"]["reason_code"])
        self.detach_set(results[:3])
        self.assert_all_removed()

    def test_failure_of_one_device_undoes_the_whole_set(self):
        self.host.set("host_timeout = 8")
        self.host.start()
        fifo = self.host.folder / f"{agent_fork_server.HANGING}.{self.volumes[2]}"
        os.mkfifo(fifo)
        answer = self.attach_set(self.volumes, atomic=True)
        self.assertEqual(500, answer.status_code, answer.text)
        self.assertIn(f"this was volume {self.volumes[2]}", answer.text)
        fifo.unlink()
        self.assert_all_removed()

    def test_repeated_request_with_key_gets_the_same_set(self):
        self.host.start()
        key = {"Idempotency-Key": f'"{os.urandom(8).hex()}"'}
        first = self.results(self.attach_set(self.volumes, atomic=True, **key))
        second = self.results(self.attach_set(self.volumes, atomic=True, **key))
        self.assertEqual(first, second)
        self.detach_set(first)
        self.assert_all_removed()

    def test_repeated_request_with_key_attaches_what_has_failed_and_nothing_else(self):
        self.host.set("host_timeout = 8")
        self.host.start()
        fifo = self.host.folder / f"{agent_fork_server.HANGING}.{self.volumes[2]}"
        os.mkfifo(fifo)
        key = {"Idempotency-Key": f'"{os.urandom(8).hex()}"'}
        first = self.results(self.attach_set(self.volumes, atomic=False, **key))
        self.assertEqual((500, None), (first[2]["error"]["code"], first[2]["status"]))
        self.detach_set(first[:1])
        fifo.unlink()
        detached, *attached = self.results(self.attach_set(self.volumes, atomic=False, **key))
        self.assertEqual("attachd.key_resource_gone", detached["error"]["reason_code"])
        self.assertEqual({"attached"}, {item["status"] for item in attached}, attached)
        self.assertEqual([first[1], first[3]], attached[::2])
        answer = self.attach_set(self.volumes, atomic=False, **key)
        self.assertEqual([detached, *attached], self.results(answer))
        self.assertEqual("true", answer.headers["Idempotent-Replayed"])
        self.detach_set(attached)
        self.assert_all_removed()

    def test_busy_device_stays_and_the_others_are_detached(self):
        self.host.start()
        results = self.results(self.attach_set(self.volumes, atomic=True))
        with self.host.device(results[0]["attachment_id"]).open("rb"):
            busy, *removed = self.detach_set(results)
        self.assertEqual(("attached", 409), (busy["status"], busy["error"]["code"]))
        self.assertIn(f"process {os.getpid()}", busy["error"]["message"])
        self.assertEqual([None] * 3, [item["status"] for item in removed])
        self.detach_set(results[:1])
        self.assert_all_removed()

    def test_sets_in_opposite_order_at_once_do_not_wait_for_each_other(self):
        self.host.start()
        answers = concurrency.run_at_once(
            lambda: self.attach_set(self.volumes, atomic=True),
            lambda: self.attach_set(self.volumes[::-1], atomic=True),
        )
        self.assertEqual([200, 400], sorted(answer.status_code for answer in answers))
        (won,) = [answer for answer in answers if answer.status_code == 200]
        results = self.results(won)
        self.assertEqual({"attached"}, {item["status"] for item in results})
        self.detach_set(results)
        self.assert_all_removed()
