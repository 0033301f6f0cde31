# SPDX-License-Identifier: Apache-2.0
"""Tests of notifications of real processes, and of outages of the broker."""

import json
import re
import unittest
from unittest import mock

from attachd.conf import CONF
from attachd.notifications import sender
from attachd.tests.fixtures import (
    captured_notifications,
    conf_fixture,
    db_rows,
    notification_listener,
    rabbitmq,
    sdk,
    tcp_proxy,
)
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

CONNECTOR = {"host": "one", "initiator": "iqn.2026-01.org.example:one"}
LIFE = [
    f"volume.{verb}.{side}"
    for verb in ("create", "update", "resize", "attach", "detach", "delete")
    for side in ("start", "end")
]
KEYS = {
    "tenant_id", "host", "user_id", "availability_zone", "volume_id", "volume_type",
    "display_name", "launched_at", "created_at", "status", "snapshot_id", "size",
    "replication_status", "replication_extended_status", "replication_driver_data", "metadata",
    "volume_attachment",
}  # fmt: skip
ON = """
[oslo_messaging_notifications]
driver = messagingv2
transport_url = {broker}
retry = {retry}

[notifications]
flush_timeout = {flush}
"""


def live(storage):
    """Have one volume do all that a volume can do; return its id."""
    volume = storage.create_volume(name="disk", size=1)
    storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
    storage.update_volume(volume, description="mine")
    storage.extend_volume(volume, 2)
    wait_until(lambda: storage.get_volume(volume.id).status != "extending")
    attachment = storage.create_attachment(volume.id, connector=CONNECTOR)
    storage.complete_attachment(attachment)
    storage.delete_attachment(attachment)
    storage.delete_volume(volume)
    storage.wait_for_delete(volume, interval=0.1, wait=TIMEOUT)
    return volume.id


@full_only("deployments")
class DeploymentCase(unittest.TestCase):
    def deploy(self, broker, retry=-1, flush=120):
        deployment = Deployment(self, "mariadb", workers=1)
        with (deployment.folder / "attachd.conf").open("a", encoding="utf-8") as file:
            file.write(ON.format(broker=broker, retry=retry, flush=flush))
        return deployment

    def lost(self, process):
        """Return (event type, id, reason) of the notifications that a process reports as lost."""
        pattern = r"Notification (\S+) of (\S+) is lost, \d+ so far: (.*)"
        return re.findall(pattern, process.output)


class LifeTest(DeploymentCase):
    def test_notification_listener_receives_volume_events_in_order(self):
        broker = rabbitmq.create_vhost(self)
        deployment = self.deploy(broker)
        listener = notification_listener.NotificationListener(self, broker)
        manager, server = deployment.start_manager(), deployment.start_gunicorn()
        deployment.wait_until_served()
        volume_id = live(sdk.block_storage(self, deployment.url))
        for kind in LIFE:  # messages of two processes may arrive in another order
            received = listener.wait_for(kind)
        # Two processes notify.  Those of one process are in order, and so are each start and its
        # end; the timestamps order the rest.
        ordered = sorted(received, key=lambda item: item["timestamp"])
        self.assertEqual(LIFE, [item["kind"] for item in ordered])
        kinds = [message["kind"] for message in received]
        for start, end in zip(LIFE[::2], LIFE[1::2], strict=True):
            self.assertLess(kinds.index(start), kinds.index(end))
        for message in received:
            payload = message["payload"]
            self.assertEqual(KEYS, set(payload), message["kind"])
            self.assertEqual((volume_id, "disk"), (payload["volume_id"], payload["display_name"]))
            self.assertNotIn("initiator", json.dumps(message))
            self.assertRegex(message["publisher"], r"^volume\.test(@file(#file)?)?$")
        statuses = {message["kind"]: message["payload"]["status"] for message in received}
        for kind, status in {
            "volume.create.start": "creating",
            "volume.create.end": "available",
            "volume.resize.start": "extending",
            "volume.attach.start": "attaching",
            "volume.detach.start": "detaching",
            "volume.detach.end": "available",
            "volume.delete.start": "deleting",
            "volume.delete.end": "deleted",
        }.items():
            self.assertEqual(status, statuses[kind], kind)
        self.assertEqual((0, 0), (server.end(), manager.end()))
        self.assertEqual([], self.lost(server) + self.lost(manager))

    def test_notifications_without_broker_are_counted_as_lost(self):
        proxy, url = tcp_proxy.in_front_of(self, rabbitmq.create_vhost(self))
        proxy.refuse()
        deployment = self.deploy(url, retry=0)
        manager, server = deployment.start_manager(), deployment.start_gunicorn()
        deployment.wait_until_served()
        volume_id = live(sdk.block_storage(self, deployment.url))
        self.assertEqual((0, 0), (server.end(), manager.end()))
        lost = self.lost(manager) + self.lost(server)
        self.assertEqual({volume_id}, {about for _kind, about, _why in lost})
        self.assertEqual(sorted(LIFE), sorted(kind for kind, _about, _why in lost))


class EndTest(DeploymentCase):
    """A process that stops while the broker accepts no notifications."""

    def end(self, start, outage):
        proxy, url = tcp_proxy.in_front_of(self, rabbitmq.create_vhost(self))
        outage(proxy)
        deployment = self.deploy(url, flush=1)  # however long: nothing is ever taken
        manager = deployment.start_manager()
        server = start(deployment)
        deployment.wait_until_served()
        storage = sdk.block_storage(self, deployment.url)
        volume = storage.create_volume(name="disk", size=1)
        storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        storage.update_volume(volume, description="mine")
        for process, verb in ((server, "update"), (manager, "create")):
            process.end()
            expected = [
                (f"volume.{verb}.{side}", volume.id, "the process ends")
                for side in ("start", "end")
            ]
            self.assertEqual(expected, self.lost(process))

    def test_notifications_lost_at_gunicorn_shutdown_are_logged(self):
        self.end(Deployment.start_gunicorn, tcp_proxy.Proxy.refuse)

    def test_notifications_lost_at_uwsgi_shutdown_are_logged(self):
        self.end(Deployment.start_uwsgi, tcp_proxy.Proxy.freeze)


class InProcessCase(ApiCase):
    def create(self):
        answer = self.expect(202, "POST", "/volumes", {"volume": {"size": 1}})
        path = f"/volumes/{answer.body['volume']['id']}"
        wait_until(lambda: self.api.request("GET", path).body["volume"]["status"] != "creating")
        return path


@full_only("outages")
class OutageTest(InProcessCase):
    def setUp(self):
        super().setUp()
        captured_notifications.use(self, "messagingv2")
        self.broker = rabbitmq.create_vhost(self)
        conf_fixture.override(self, "transport_url", self.broker, sender.GROUP)
        conf_fixture.override(self, "flush_timeout", TIMEOUT, "notifications")

    def test_notifications_during_broker_outage_are_sent_after_it(self):
        path = self.create()
        sender.stop()
        proxy, url = tcp_proxy.in_front_of(self, self.broker)
        proxy.refuse()
        CONF.set_override("transport_url", url, sender.GROUP)
        with self.assertNoLogs("attachd.notifications.sender", "WARNING"):
            for number in range(5):
                body = {"volume": {"name": f"disk-{number}"}}
                self.assertEqual(200, self.api.request("PUT", path, body).status)
            self.api.request("DELETE", path)
            listener = notification_listener.NotificationListener(self, self.broker)
            proxy.pass_on()
            listener.wait_for("volume.delete.end")
        updates = ["volume.update.start", "volume.update.end"] * 5
        expected = ["volume.create.start", "volume.create.end", *updates,
                    "volume.delete.start", "volume.delete.end"]  # fmt: skip
        self.assertEqual(expected, listener.event_types())

    def test_notifications_beyond_the_queue_size_are_counted_as_lost(self):
        self.enterContext(mock.patch.object(sender, "QUEUE_SIZE", 3))
        # However long: nothing is ever taken.
        CONF.set_override("flush_timeout", 2.0, "notifications")
        proxy, url = tcp_proxy.in_front_of(self, self.broker)
        proxy.freeze()
        CONF.set_override("transport_url", url, sender.GROUP)
        path = self.create()
        with self.assertLogs("attachd.notifications.sender", "ERROR") as logged:
            for number in range(5):
                body = {"volume": {"name": f"disk-{number}"}}
                self.assertEqual(200, self.api.request("PUT", path, body).status)
            sender.stop()
        result = [record.getMessage() for record in logged.records]
        self.assertIn("the queue is full", result[0])
        self.assertEqual(12, len(result))


class CostTest(InProcessCase):
    def statements(self):
        """Count those of the requests themselves, in one cycle."""
        from attachd.db.engine import session

        volume = db_rows.add_volume()
        body = {"attachment": {"volume_uuid": volume["id"], "connector": CONNECTOR}}
        before = session.counters().statements
        made = self.api.request("POST", "/attachments", body).body["attachment"]
        path = f"/attachments/{made['id']}"
        self.api.request("POST", f"{path}/action", {"os-complete": None})
        self.assertEqual(200, self.api.request("DELETE", path).status)
        return session.counters().statements - before

    def test_notifications_cost_of_a_cycle_is_printed(self):
        captured_notifications.use(self, "noop")
        self.statements()
        without = self.statements()
        self.assertIsNone(sender._sender)
        received = captured_notifications.use(self)
        self.statements()
        received.messages()
        before = self.statements()
        result = len(received.event_types()) - 4
        self.assertEqual(4, result)
        # Each of the four reads its volume, in the background; the completion its attachments.
        self.assertLessEqual(before - without, 5)
