# SPDX-License-Identifier: Apache-2.0
"""Tests of fences that managers finish: of API processes that died, and of the older calls."""

from concurrent import futures
from unittest import mock

import sqlalchemy as sa
import testtools

from attachd import exception
from attachd.api.fencing import fence_attachments
from attachd.db import host_fences, models
from attachd.manager.fenced_hosts import FencedHosts
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.rpc.manager_api import Fencing
from attachd.tests.fixtures import (
    captured_notifications,
    db_rows,
    http_client,
    notification_listener,
    rabbitmq,
    wsgi_api,
)
from attachd.tests.fixtures.deployments import Deployment, connector_body
from attachd.tests.functional.fencing_case import (
    DEAD,
    LIVING,
    REASON,
    VERSION,
    FencingCase,
    connector,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

SERVER = "11111111-2222-4333-8444-555555555555"


class Case(FencingCase):
    def setUp(self):
        super().setUp()
        self.managers = [FencedHosts(), FencedHosts()]
        self.sent = captured_notifications.use(self)

    def attach(self, host=DEAD, volume=None):
        volume = volume or db_rows.add_volume()["id"]
        return self.create_attachment(volume, connector=connector(host))

    def fence_and_die(self):
        """Fence as an API process that is killed as soon as that is stored."""
        with mock.patch.object(fence_attachments, "fence_host", side_effect=SystemExit):
            self.assertRaises(SystemExit, self.fence)

    def run_managers(self, times=2):
        for _ in range(times):
            for manager in self.managers:
                manager.run_once()

    def run_until_notified(self):
        """Run until the end is sent, which waits for the start, and then again."""
        wait_until(
            lambda: self.run_managers(times=1) or host_fences.find(DEAD)["notified"] == "end"
        )
        self.run_managers()

    def run_until_proved(self):
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or not db_rows.list_attachments())

    def proof(self, attachment):
        events = self.own("GET", f"/attachments/{attachment}/timeline")["timeline"]
        self.assertEqual(["fenced", "deleted"], [event["type"] for event in events][-2:])
        return events[-2]["proof"]

    def results(self, items):
        return {item["attachment_id"]: item["result"] for item in items}


class DeadApiTest(Case):
    def test_fence_that_a_killed_api_has_stored_is_finished_by_managers(self):
        attachments = [self.attach(), self.attach()]
        volume = db_rows.get_attachment(attachments[0])["volume_id"]
        kept = self.attach(LIVING)
        self.fence_and_die()
        self.assertEqual({*attachments, kept}, self.driver.granted())
        self.run_managers()
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or len(db_rows.list_attachments()) == 1)
        for attachment in attachments:
            self.assertEqual("proved", self.proof(attachment)["result"])
        made = self.attach(LIVING, volume)
        self.assertEqual({kept, made}, self.driver.granted())
        self.run_until_notified()
        start, end = (
            message for message in self.sent.messages() if message["event_type"][:5] == "host."
        )
        self.assertEqual("host.fence.start", start["event_type"])
        self.assertEqual("host.fence.end", end["event_type"])
        self.assertEqual(
            dict.fromkeys(attachments, "proved"), self.results(end["payload"]["attachments"])
        )

    def test_lifted_fence_of_killed_api_is_not_finished(self):
        attachment = self.attach()
        self.fence_and_die()
        self.run_managers(times=1)
        self.own("POST", f"/hosts/{DEAD}/unfence", {"unfence": None})
        self.run_managers()
        self.assertEqual("connected", db_rows.get_attachment(attachment)["state"])
        self.assertEqual({attachment}, self.driver.granted())

    def test_backend_without_fencing_keeps_its_attachments(self):
        attachment = self.attach()
        with mock.patch("attachd.manager.fencing.get_fencing", return_value=Fencing.NONE):
            BackendHeartbeat(self.api.backend).run_once()
        self.fence_and_die()
        self.run_managers()
        self.assertEqual("connected", db_rows.get_attachment(attachment)["state"])
        self.assertEqual({attachment}, self.driver.granted())

    def test_forced_delete_that_failed_is_not_held_up_by_managers(self):
        attachment = self.attach()
        with mock.patch.object(self.driver, "_forget"):
            self.fence()
        with self.driver.failing("revoke", "revoke_all_except"):
            path = f"/attachments/{attachment}?force=true"
            self.expect(500, "DELETE", path, token=wsgi_api.ADMIN, version=VERSION)
            self.run_managers()
        self.assertFalse(db_rows.get_attachment(attachment)["fenced"])
        self.own("DELETE", f"/attachments/{attachment}?force=true")
        self.assertEqual([], db_rows.list_attachments())


class NotificationTest(Case):
    def steps(self):
        return [
            (message["event_type"], self.results(message["payload"].get("attachments", ())))
            for message in self.sent.messages()
            if message["event_type"].startswith("host.")
        ]

    def test_fence_by_command_has_one_start_and_one_end(self):
        attachment = self.attach()
        self.fence()
        self.fence()
        self.run_until_notified()
        self.assertEqual(
            [("host.fence.start", {}), ("host.fence.end", {attachment: "proved"})], self.steps()
        )

    def test_fence_of_backend_that_is_down_has_its_end_with_the_proof(self):
        attachment = self.attach()
        self.api.backend.take_down(exception.BackendError("the cable is out"))
        self.fence()
        self.run_managers()
        self.api.backend.setup()
        self.run_until_proved()
        self.run_until_notified()
        self.assertEqual(
            [("host.fence.start", {}), ("host.fence.end", {attachment: "proved"})], self.steps()
        )

    def test_notifications_that_a_process_did_not_send_are_sent_later(self):
        self.attach()
        with mock.patch("attachd.notifications.sender.Sender.put"):  # It dies with its queue.
            self.fence()
        self.run_managers()
        later = models.now() + host_fences.NOTIFY_TIMEOUT
        with mock.patch.object(models, "now", return_value=later):
            self.run_until_notified()
        steps = [step for step, _results in self.steps()]
        self.assertEqual(["host.fence.start", "host.fence.end"], steps)


class LegacyTest(Case):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume()["id"]

    def initialize(self, host=DEAD, volume=None):
        sent = {"connector": connector(host)}
        self.act(volume or self.volume, "os-initialize_connection", sent, status=200)

    def os_attach(self, **body):
        body = {"instance_uuid": SERVER, "mountpoint": "/dev/vdb"} | body
        self.act(self.volume, "os-attach", {key: value for key, value in body.items() if value})
        return next(
            row["id"] for row in db_rows.list_attachments(self.volume) if row["kind"] == "legacy"
        )

    def status(self):
        row = db_rows.get_volume(self.volume)
        return row["status"], row["attach_status"]

    def kinds(self):
        return [row["kind"] for row in db_rows.list_attachments(self.volume)]

    def test_attachment_of_fenced_host_is_removed_with_proof(self):
        self.initialize()
        attachment = self.os_attach()
        self.act(self.volume, "os-begin_detaching")
        shown = self.own("GET", f"/hosts/{DEAD}")["host"]
        self.assertEqual([attachment], shown["attachment_ids"])
        self.assertEqual({attachment: "proved"}, self.results(self.fence()["attachments"]))
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual(("available", "detached"), self.status())
        self.assertEqual([], self.kinds())
        self.assertEqual(("proved", 2), self.proof_of(attachment))
        self.assertNotIn("attached_mode", db_rows.get_volume(self.volume)["admin_metadata"])
        self.assertEqual(0, db_rows.get_volume(self.volume)["pending_detaches"])
        self.attach(LIVING, self.volume)
        self.run_until_notified()
        steps = [message["event_type"] for message in self.sent.messages()]
        self.assertEqual(1, steps.count("host.fence.end"))
        self.assertEqual(1, steps.count("volume.detach.end"))

    def proof_of(self, attachment):
        proof = self.proof(attachment)
        return proof["result"], len(proof["observed_at"])

    def test_attachment_is_removed_by_recovery_as_well(self):
        self.initialize()
        attachment = self.os_attach()
        self.api.backend.take_down(exception.BackendError("the cable is out"))
        self.assertEqual({attachment: "pending"}, self.results(self.fence()["attachments"]))
        self.assertEqual("in-use", self.status()[0])
        self.api.backend.setup()
        self.run_until_proved()
        self.assertEqual(("available", "detached"), self.status())
        self.assertEqual(("proved", 2), self.proof_of(attachment))

    def test_attachment_stays_while_the_access_of_its_host_is_listed(self):
        self.initialize()
        attachment = self.os_attach()
        with mock.patch.object(self.driver, "_forget"):
            self.assertEqual({attachment: "failed"}, self.results(self.fence()["attachments"]))
        self.assertEqual(["connection", "legacy"], sorted(self.kinds()))
        self.assertEqual({attachment: "proved"}, self.results(self.fence()["attachments"]))
        self.assertEqual([], self.kinds())

    def test_attachment_with_a_connection_of_another_host_stays(self):
        self.initialize()
        attachment = self.os_attach()
        self.initialize(LIVING)  # As during a live migration.
        self.assertEqual({attachment: "proved"}, self.results(self.fence()["attachments"]))
        self.assertEqual(["connection", "legacy"], sorted(self.kinds()))
        self.assertEqual(1, len(self.driver.granted()))
        self.assertEqual("in-use", self.status()[0])
        self.assertEqual({attachment: "proved"}, self.results(self.fence(LIVING)["attachments"]))
        self.assertEqual(("available", "detached"), self.status())

    def test_attachment_that_names_the_host_without_connection_is_removed(self):
        attachment = self.os_attach(host_name=DEAD, instance_uuid=None)
        self.attach()
        fence = self.fence()
        self.assertEqual("proved", self.results(fence["attachments"])[attachment])
        self.assertEqual(("available", "detached"), self.status())
        self.assertEqual(("proved", 0), self.proof_of(attachment))

    def test_attachment_that_names_the_host_keeps_the_connection_of_another(self):
        self.initialize(LIVING)
        attachment = self.os_attach(host_name=DEAD, instance_uuid=None)
        self.attach()
        fence = self.fence()
        self.assertNotIn(attachment, self.results(fence["attachments"]))
        self.assertEqual(["connection", "legacy"], sorted(self.kinds()))
        self.assertEqual(1, len(self.driver.granted()))

    def test_unused_connection_of_the_same_user_on_another_host_stays(self):
        kind = self.create_type("shared", {"multiattach": "<is> True"})
        self.volume = db_rows.add_volume(multiattach=True, volume_type_id=kind)["id"]
        attachment = self.os_attach(host_name=DEAD, instance_uuid=None)
        self.initialize(LIVING)
        db_rows.change_attachment(self.connection(), parent_id=None)
        self.attach()
        self.assertEqual("proved", self.results(self.fence()["attachments"])[attachment])
        self.assertEqual(["connection"], self.kinds())
        self.assertEqual({self.connection()}, self.driver.granted())

    def connection(self):
        (row,) = [
            row for row in db_rows.list_attachments(self.volume) if row["kind"] == "connection"
        ]
        return row["id"]

    def test_legacy_attachments_of_killed_api_are_finished_by_managers(self):
        self.initialize()
        attachment = self.os_attach()
        self.fence_and_die()
        self.run_managers()
        self.run_until_proved()
        self.run_until_notified()
        self.assertEqual(("available", "detached"), self.status())
        end = self.sent.messages()[-1]
        self.assertEqual("host.fence.end", end["event_type"])
        self.assertEqual({attachment: "proved"}, self.results(end["payload"]["attachments"]))


ON = """
[oslo_messaging_notifications]
driver = messagingv2
transport_url = {broker}
"""


@full_only("deployments")
class KilledApiTest(testtools.TestCase):
    def test_fence_of_api_that_is_killed_after_storing_it_is_finished_and_notified(self):
        broker = rabbitmq.create_vhost(self)
        deployment = Deployment(self, "mariadb", "fake")
        deployment.configure(ON.format(broker=broker) + "[fake]\ndriver = fake\n")
        listener = notification_listener.NotificationListener(self, broker)
        deployment.start()
        api = http_client.Client(f"{deployment.url}/v3", version=VERSION)
        volume = api.create_volume()
        body = {"attachment": {"volume_uuid": volume, **connector_body(DEAD)["attachment"]}}
        self.assertEqual(200, api.request("POST", "/attachments", body).status)
        engine = sa.create_engine(deployment.database)
        self.addCleanup(engine.dispose)
        with futures.ThreadPoolExecutor(1) as pool:
            with engine.begin() as connection:
                # Storing that the attachment is fenced waits for this lock.
                connection.execute(sa.text("SELECT id FROM volumes FOR UPDATE"))
                command = pool.submit(api.request, "POST", f"/hosts/{DEAD}/fence", REASON)
                listener.wait_for("host.fence.start")
                query = sa.text("SELECT notified FROM host_fences")
                wait_until(lambda: self.read(engine, query) == "start")
                deployment.server.kill()
                self.assertIsNotNone(command.exception())
            received = listener.wait_for("host.fence.end")
        kinds = [item["kind"] for item in received if item["kind"].startswith("host.")]
        self.assertEqual(["host.fence.start", "host.fence.end"], kinds)
        (result,) = received[-1]["payload"]["attachments"]
        self.assertEqual((volume, "proved"), (result["volume_id"], result["result"]))

    def read(self, engine, query):
        with engine.connect() as connection:
            return connection.execute(query).scalar()
