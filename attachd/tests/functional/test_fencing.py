# SPDX-License-Identifier: Apache-2.0
"""Tests of fencing hosts, with a manager whose backend is fake."""

import datetime
import json
from pathlib import Path
import sys
import threading
import unittest
from unittest import mock

import attachd
from attachd import exception
from attachd.conf import CONF
from attachd.db import host_fences, models
from attachd.db.agents import agent_transitions, host_leases
from attachd.db.host_fences import Lift
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.rpc.manager_api import Fencing
from attachd.tests.fixtures import (
    conf_fixture,
    databases,
    db_rows,
    fake_agent,
    lease_rows,
    processes,
    rabbitmq,
    wsgi_api,
)
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.functional.fencing_case import (
    DEAD,
    LIVING,
    REASON,
    VERSION,
    FencingCase,
    connector,
)
from attachd.tests.functional.host_attach_case import HOST, HostAttachCase
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until


class Case(FencingCase):
    def volume(self, **columns):
        return db_rows.add_volume(**columns)["id"]

    def attach(self, volume, host):
        return self.create_attachment(volume, connector=connector(host))

    def results(self, fence):
        return {item["attachment_id"]: item["result"] for item in fence["attachments"]}

    def timeline(self, attachment_id):
        path = f"/attachments/{attachment_id}/timeline"
        return self.own("GET", path)["timeline"]


class FenceHostTest(Case):
    def test_access_of_all_volumes_ends_with_proof_and_other_hosts_keep_theirs(self):
        shared = self.volume(multiattach=True)
        ended = {self.attach(shared, DEAD), self.attach(self.volume(), DEAD)}
        kept = self.attach(shared, LIVING)
        fence = self.fence()
        self.assertEqual(dict.fromkeys(ended, "proved"), self.results(fence))
        self.assertEqual({kept}, self.driver.granted())
        self.assertEqual([kept], [row["id"] for row in db_rows.list_attachments()])
        host = fence["host"]
        self.assertEqual(
            (True, 1, []), (host["fenced"], host["generation"], host["attachment_ids"])
        )
        self.assertEqual(("no heartbeat", "root"), (host["reason"], host["user_id"]))

    def test_event_has_proof_with_two_observations(self):
        attachment = self.attach(self.volume(), DEAD)
        self.fence()
        events = self.timeline(attachment)
        self.assertEqual(["fenced", "deleted"], [event["type"] for event in events][-2:])
        proof = events[-2]["proof"]
        self.assertEqual(
            ("proved", 2, 2),
            (
                proof["result"],
                len(proof["observed_at"]),
                len(proof["observed"]),
            ),
        )
        self.assertEqual("root", events[-2]["user_id"])

    def test_fenced_host_attaches_nothing_until_fence_is_lifted(self):
        self.attach(self.volume(), DEAD)
        self.fence()
        volume = self.volume()
        reserved = self.create_attachment(volume)
        body = {"attachment": {"connector": connector(DEAD)}}
        answer = self.expect(409, "PUT", f"/attachments/{reserved}", body)
        self.assertIn(f"Host {DEAD} is fenced since ", answer.fault)
        self.assertIn("because: no heartbeat", answer.fault)
        self.assertEqual("reserved", db_rows.get_attachment(reserved)["state"])
        initialize = {"connector": connector(DEAD)}
        self.act(self.volume(), "os-initialize_connection", initialize, 409)
        self.assertEqual(set(), self.driver.granted())
        shown = self.own("POST", f"/hosts/{DEAD}/unfence", {"unfence": None})["host"]
        self.assertEqual((False, 1), (shown["fenced"], shown["generation"]))
        self.expect(200, "PUT", f"/attachments/{reserved}", body)
        self.assertEqual({reserved}, self.driver.granted())

    def test_second_fence_keeps_the_first_and_tries_what_is_left(self):
        attachment = self.attach(self.volume(), DEAD)
        with self.driver.failing("revoke", "revoke_all_except"):
            first = self.fence()
        (result,) = first["attachments"]
        self.assertEqual("failed", result["result"])
        self.assertIn("The backend failed", result["reason"])
        self.assertEqual([attachment], first["host"]["attachment_ids"])
        second = self.fence()
        self.assertEqual({attachment: "proved"}, self.results(second))
        self.assertEqual(first["host"]["fenced_at"], second["host"]["fenced_at"])
        self.assertEqual(1, second["host"]["generation"])

    def test_list_shows_fenced_hosts_only(self):
        self.attach(self.volume(), DEAD)
        self.attach(self.volume(), LIVING)
        self.assertEqual([], self.own("GET", "/hosts")["hosts"])
        self.fence()
        self.assertEqual([DEAD], [host["host"] for host in self.own("GET", "/hosts")["hosts"]])
        self.assertFalse(self.own("GET", f"/hosts/{LIVING}")["host"]["fenced"])

    def test_unknown_host_is_refused_and_not_fenced(self):
        for method, path, body in (
            ("POST", "/hosts/nowhere/fence", REASON),
            ("POST", "/hosts/nowhere/unfence", {"unfence": {}}),
            ("GET", "/hosts/nowhere", None),
        ):
            said = self.own(method, path, body, 404)
            self.assertIn("Host nowhere could not be found", said)
        self.assertIsNone(host_fences.find("nowhere"))

    def test_reservation_of_fenced_host_stays(self):
        self.attach(self.volume(), DEAD)
        reserved = self.create_attachment(self.volume())
        self.fence()
        self.assertEqual([reserved], [row["id"] for row in db_rows.list_attachments()])


class ProofTest(Case):
    def test_access_that_stays_listed_is_no_proof_and_row_stays(self):
        volume = self.volume()
        attachment = self.attach(volume, DEAD)
        with mock.patch.object(self.driver, "_forget"):
            (result,) = self.fence()["attachments"]
        self.assertEqual("failed", result["result"])
        self.assertIn("still lists access", result["reason"])
        self.assertEqual("disconnect_failed", db_rows.get_attachment(attachment)["state"])
        self.assertEqual("error", db_rows.get_volume(volume)["status"])

    def test_failed_fence_is_proved_by_recovery(self):
        attachment = self.attach(self.volume(), DEAD)
        with mock.patch.object(self.driver, "_forget"):
            self.fence()
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or not db_rows.list_attachments())
        self.assertEqual("proved", self.timeline(attachment)[-2]["proof"]["result"])

    def test_hanging_session_is_evicted(self):
        attachment = self.attach(self.volume(), DEAD)
        with self.driver.failing("revoke"):
            fence = self.fence()
        self.assertEqual({attachment: "proved"}, self.results(fence))
        self.assertEqual("revoke_all_except", self.driver.calls[-3].method)

    def test_backend_that_cannot_end_access_changes_nothing(self):
        attachment = self.attach(self.volume(), DEAD)
        with mock.patch("attachd.manager.fencing.get_fencing", return_value=Fencing.NONE):
            BackendHeartbeat(self.api.backend).run_once()
        (result,) = self.fence()["attachments"]
        self.assertEqual("failed", result["result"])
        self.assertIn("Turn the host off", result["reason"])
        self.assertEqual({attachment}, self.driver.granted())
        self.assertEqual("connected", db_rows.get_attachment(attachment)["state"])

    def test_force_delete_does_not_wait_for_proof(self):
        attachment = self.attach(self.volume(), DEAD)
        with mock.patch.object(self.driver, "_forget"):
            self.fence()
            self.own("DELETE", f"/attachments/{attachment}?force=true")
        self.assertEqual([], db_rows.list_attachments())

    def test_backend_that_is_down_is_pending_and_finished_by_recovery(self):
        attachment = self.attach(self.volume(), DEAD)
        self.api.backend.take_down(exception.BackendError("the cable is out"))
        (result,) = self.fence()["attachments"]
        self.assertEqual("pending", result["result"])
        self.assertIn("the cable is out", result["reason"])
        self.assertEqual("disconnecting", db_rows.get_attachment(attachment)["state"])
        self.api.backend.setup()
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or not db_rows.list_attachments())
        self.assertEqual("proved", self.timeline(attachment)[-2]["proof"]["result"])

    def test_slow_backend_is_pending_in_time(self):
        attachment = self.attach(self.volume(), DEAD)
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        free = threading.Event()
        self.addCleanup(free.set)
        with mock.patch.object(self.driver, "script", lambda _call: free.wait()):
            (result,) = self.fence()["attachments"]
        self.assertEqual("pending", result["result"])
        free.set()
        wait_until(lambda: not db_rows.list_attachments())
        self.assertEqual("proved", self.timeline(attachment)[-2]["proof"]["result"])


class ForceAttachTest(Case):
    def setUp(self):
        super().setUp()
        self.shared = self.volume()
        self.old = self.attach(self.shared, DEAD)

    def replace(self, status=200, volume=None, version=VERSION, token=wsgi_api.ADMIN, **fields):
        values = {
            "volume_uuid": volume or self.shared,
            "connector": connector(LIVING),
            "instead_of": self.old,
            **fields,
        }
        body = {"attachment": values}
        options = {"token": token, "version": version}
        return self.expect(status, "POST", "/attachments", body, **options)

    def test_new_attachment_replaces_the_proved_old_one(self):
        made = self.replace().body["attachment"]["id"]
        self.assertEqual({made}, self.driver.granted())
        self.assertEqual([made], [row["id"] for row in db_rows.list_attachments()])
        self.assertEqual("proved", self.timeline(self.old)[-2]["proof"]["result"])
        methods = self.driver.methods
        self.assertLess(methods.index("revoke"), len(methods) - 1 - methods[::-1].index("grant"))

    def test_nothing_is_attached_without_proof(self):
        with mock.patch.object(self.driver, "_forget"):
            said = self.replace(409).fault
        self.assertIn(f"Attachment {self.old} of host {DEAD} is not fenced", said)
        self.assertIn("still lists access", said)
        self.assertEqual([self.old], [row["id"] for row in db_rows.list_attachments()])
        self.replace()

    def test_repeated_request_goes_on_where_the_first_one_ended(self):
        with self.driver.failing("grant", final=True):
            self.replace(500)
        made = self.replace().body["attachment"]["id"]
        self.assertEqual({made}, self.driver.granted())

    def test_host_that_may_not_attach_ends_no_access(self):
        for host in ("fenced", "taken"):
            self.attach(self.volume(), host)
        self.fence("fenced")
        granted = self.driver.granted()
        for host, known in (("fenced", "fenced"), ("other", "fenced"), ("other", "taken")):
            named = {**connector(known), "host": host}
            said = self.replace(409, connector=named).fault
            self.assertIn("fenced since" if known == "fenced" else "belongs to host taken", said)
        self.replace(404, connector=None, host="without-agent")
        fake_agent.report_agent("silent")
        fake_agent.expire_heartbeat("silent")
        self.replace(409, connector=None, host="silent")
        self.assertEqual(granted, self.driver.granted())
        self.assertEqual("connected", db_rows.get_attachment(self.old)["state"])

    def test_renamed_host_replaces_its_own_attachment(self):
        made = self.replace(connector={**connector(DEAD), "host": "renamed"})
        self.assertEqual({made.body["attachment"]["id"]}, self.driver.granted())

    def test_attachment_of_another_volume_is_refused(self):
        said = self.replace(400, volume=self.volume()).fault
        self.assertIn(f"It is an attachment of volume {self.shared}", said)
        self.assertEqual({self.old}, self.driver.granted())

    def test_unknown_attachment_is_not_found(self):
        self.replace(404, instead_of="11111111-2222-4333-8444-555555555555")

    def test_members_and_older_versions_are_refused(self):
        self.assertIn("attachment_force_attach", self.replace(403, token=wsgi_api.MEMBER).fault)
        for version in (wsgi_api.LATEST, f"{wsgi_api.LATEST}, attachd 1.0"):
            self.assertIn("attachd 1.1", self.replace(400, version=version).fault)
        self.assertEqual({self.old}, self.driver.granted())

    def test_dry_run_is_refused(self):
        body = {"attachment": {"volume_uuid": self.shared, "instead_of": self.old}}
        path = "/attachments?dry_run=true"
        self.assertIn("A dry run fences nothing", self.own("POST", path, body, 400))

    def test_backend_without_listing_needs_a_rule_of_its_own(self):
        for fencing, status in ((Fencing.NONE, 409), (Fencing.ASSERTED, 200)):
            with mock.patch("attachd.manager.fencing.get_fencing", return_value=fencing):
                BackendHeartbeat(self.api.backend).run_once()
                self.replace(status)
        self.assertEqual("asserted", self.timeline(self.old)[-2]["proof"]["result"])


class RaceTest(Case):
    def test_connect_that_began_before_gives_no_access(self):
        volume = self.volume()
        reserved = self.create_attachment(volume)
        listed = self.attach(self.volume(), DEAD)

        def fence_first(_row, event, *_more, **_options):
            # The row is connecting; the fence comes before the driver.
            if event == "attach.start":
                host_fences.fence(DEAD, "race", None)

        real = "attachd.manager.notify.attachment_event"
        with mock.patch(real, lambda backend, event, moved: fence_first(moved, event)):
            body = {"attachment": {"connector": connector(DEAD)}}
            answer = self.expect(409, "PUT", f"/attachments/{reserved}", body)
        self.assertIn("because: race", answer.fault)
        self.assertEqual({listed}, self.driver.granted())
        self.assertEqual("connect_failed", db_rows.get_attachment(reserved)["state"])

    def test_connect_in_progress_is_fenced(self):
        volume = self.volume()
        reserved = self.create_attachment(volume)
        granting, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def script(call):
            if call.method == "grant":
                granting.set()
                go.wait()

        answers = []
        body = {"attachment": {"connector": connector(DEAD)}}
        connect = threading.Thread(
            target=lambda: answers.append(
                self.api.request("PUT", f"/attachments/{reserved}", body).status
            )
        )
        self.driver.script = script
        self.addCleanup(setattr, self.driver, "script", None)
        connect.start()
        self.assertTrue(granting.wait(30))
        fences = []
        fence = threading.Thread(target=lambda: fences.append(self.fence()))
        fence.start()
        wait_until(lambda: db_rows.get_attachment(reserved)["state"] == "disconnecting")
        go.set()
        connect.join(30)
        fence.join(30)
        self.assertEqual({reserved: "proved"}, self.results(fences[0]))
        self.assertEqual([409], answers)
        self.assertEqual(set(), self.driver.granted())


class AgentTest(HostAttachCase):
    def test_agent_takes_no_part_and_its_late_report_is_refused(self):
        BackendHeartbeat(self.api.backend).run_once()
        attachment = self.attached()
        generation = self.only()["generation"]
        self.agent.is_silent = True
        self.addCleanup(self.agent.resume)
        answer = self.api.request(
            "POST", f"/hosts/{HOST}/fence", REASON, token=wsgi_api.ADMIN, version=VERSION
        )
        self.assertEqual(200, answer.status, answer.raw)
        (result,) = answer.body["fence"]["attachments"]
        self.assertEqual((attachment, "proved"), (result["attachment_id"], result["result"]))
        self.assertEqual(set(), self.driver.granted())
        late = (attachment, HOST, generation, "/dev/sdb")
        self.assertRaises(exception.AttachmentNotFound, agent_transitions.complete, *late)
        self.assertEqual(409, self.post().status)

    def fence(self, **fields):
        BackendHeartbeat(self.api.backend).run_once()
        path, body = f"/hosts/{HOST}/fence", {"fence": {**REASON["fence"], **fields}}
        answer = self.api.request("POST", path, body, token=wsgi_api.ADMIN, version=VERSION)
        self.assertEqual(200, answer.status, answer.raw)
        return answer.body["fence"]["host"]["lift"]

    def report(self, boot_id, devices=(), error=None, host=HOST, **more):
        said = {"connector": None, "devices": list(devices), "error": error, "boot_id": boot_id}
        fake_agent.report(host, **said, **more)
        return host == HOST and host_fences.find(host)["fenced_at"] is None

    def test_new_start_keeps_fence_of_administrator(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.assertEqual("manual", self.fence())
        self.assertFalse(self.report("second"))

    def test_administrator_who_fences_host_again_makes_fence_of_lease_manual(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.assertTrue(host_leases.fence(lease_rows.list_leases()[HOST]))
        self.assertEqual(Lift.AUTO, host_fences.find(HOST)["lift"])
        self.assertEqual("manual", self.fence())
        self.assertFalse(self.report("second"))

    def test_new_start_without_devices_lifts_fence_that_says_auto(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.assertEqual("auto", self.fence(lift="auto"))
        device = {"attachment_id": "a", "volume_id": "v", "path": "/dev/sdb", "size_bytes": 1}
        self.assertFalse(self.report("first"))
        self.assertFalse(self.report("second", [device]))
        self.assertFalse(self.report("second", error="The journal cannot be read."))
        # The first one may still run: this would be a copy.
        self.assertFalse(self.report("second"))
        self.make_former_start_silent()
        self.assertTrue(self.report("second"))

    def test_device_of_compute_keeps_the_fence_of_its_host(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.fence(lift="auto")
        self.report("second")
        self.make_former_start_silent()
        found = {"attachment_id": None, "target": "t", "path": "/dev/sdb", "size_bytes": 1}
        known, unknown = db_rows.add_volume()["id"], "of another service"
        observed = {"devices": [{**found, "volume_id": known}], "asked": []}
        self.assertFalse(self.report("second", observed=observed))
        observed = {"devices": [{**found, "volume_id": unknown}], "asked": []}
        self.assertTrue(self.report("second", observed=observed))

    def make_former_start_silent(self, host=HOST):
        long_ago = models.now() - datetime.timedelta(seconds=CONF.agent.down_time)
        db_rows.change_agent(host, former_boot_at=long_ago)

    def test_agent_of_another_host_lifts_no_fence(self):
        fenced, others = "web.a.example", ("web", "web.b.example")
        fake_agent.report_agent(fenced, boot_id="first")
        host_fences.fence("web", "dead", None, Lift.AUTO)
        host_fences.fence(fenced, "dead", None, Lift.AUTO)
        for number, other in enumerate(others):
            fake_agent.report_agent(other, boot_id=f"other-{number}", connector=None)
            self.report(f"another-{number}", host=other)
            self.make_former_start_silent(other)
            self.report(f"another-{number}", host=other)
        for host in ("web", fenced):
            self.assertIsNotNone(host_fences.find(host)["fenced_at"], host)

    def test_fence_stays_where_administrators_check_hosts(self):
        fake_agent.report_agent(HOST, boot_id="first")
        self.fence(lift="auto")
        conf_fixture.override(self, "lift_fences", False, group="agent")
        self.assertFalse(self.report("second"))


@full_only("clients")
class BenchmarkTest(unittest.TestCase):
    def test_benchmark_fences_hosts_with_proof(self):
        benchmark = Path(attachd.__file__).parents[1] / "benchmarks" / "fence_host.py"
        if not benchmark.is_file():
            self.skipTest("installed without the benchmarks")
        output = temp_dir(self) / "result.json"
        done = processes.run(
            [
                *(sys.executable, "-W", "ignore", str(benchmark), "--json", str(output)),
                *("--db", databases.create(self, "mariadb"), "--attachments", "1,3"),
                *("--rabbit", rabbitmq.create_vhost(self), "--rounds", "2"),
            ],
            timeout=2 * TIMEOUT,
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
        self.assertEqual(
            [(1, 2, 0), (3, 2, 0)], [(row["number"], row["rounds"], row["left"]) for row in rows]
        )
