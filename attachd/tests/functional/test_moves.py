# SPDX-License-Identifier: Apache-2.0
"""Tests of moves of attachments to other hosts, with a manager whose backend is fake."""

import contextlib
import threading
from unittest import mock

from attachd.db.attachments import events
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.ensure_exports import EnsureExportsTask
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.rpc.manager_api import Fencing
from attachd.tests.fixtures import db_rows, fake_agent, wsgi_api
from attachd.tests.fixtures.api_context import new_id
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.functional.fencing_case import VERSION, connector
from attachd.tests.functional.host_attach_case import HOST, HostAttachCase
from attachd.tests.wait import wait_until

OLD, NEW, THIRD = "compute-1", "compute-2", "compute-3"


class MoveCase(ApiCase):
    def setUp(self):
        super().setUp()
        BackendHeartbeat(self.api.backend).run_once()
        self.volume = db_rows.add_volume()["id"]
        self.source = self.attach(OLD)

    def attach(self, host, volume=None, **fields):
        volume = volume or self.volume
        return self.create_attachment(volume, connector=connector(host), **fields)

    def own(self, method, path, body=None, status=200, **options):
        return self.expect(status, method, path, body, version=VERSION, **options)

    def begin(self, host=NEW, status=200, path="/attachments", headers=(), **fields):
        """Begin a move; return the answer."""
        values = {"volume_uuid": self.volume, "move_from": self.source, **fields}
        if host is not None:
            values["connector"] = connector(host)
        return self.own("POST", path, {"attachment": values}, status, **dict(headers))

    def begin_move(self, **options):
        """Begin a move; return the id of the destination."""
        return self.begin(**options).body["attachment"]["id"]

    def finish(self, destination, status=200, token=wsgi_api.MEMBER):
        body = {"finish_move": {}}
        return self.own("POST", f"/attachments/{destination}/action", body, status, token=token)

    def shown(self, attachment):
        return self.own("GET", f"/attachments/{attachment}").body["attachment"]

    def modes(self):
        """Return the modes of access that the backend has granted, by attachment."""
        return dict(self.driver._granted.get(self.volume, {}))

    def timeline(self, attachment):
        found = self.own("GET", f"/attachments/{attachment}/timeline").body["timeline"]
        return [event["type"] for event in found]


class MoveTest(MoveCase):
    def test_destination_reads_until_the_move_is_finished(self):
        answer = self.begin().body["attachment"]
        destination = answer["id"]
        self.assertEqual((self.source, True), (answer["move_from"], answer["one_writer"]))
        self.assertEqual("ro", answer["connection_info"]["access_mode"])
        self.assertEqual({self.source: "rw", destination: "ro"}, self.modes())
        finished = self.finish(destination).body["attachment"]
        self.assertEqual({destination: "rw"}, self.modes())
        self.assertEqual((None, None), (finished["move_from"], finished["one_writer"]))
        self.assertEqual("rw", finished["attach_mode"])
        self.assertEqual("rw", finished["connection_info"]["access_mode"])
        self.assertEqual([destination], [row["id"] for row in db_rows.list_attachments()])

    def test_source_is_fenced_with_proof_before_the_mode_changes(self):
        destination = self.begin_move()
        self.driver.calls.clear()
        self.finish(destination)
        methods = [call.method for call in self.driver.calls]
        self.assertLess(methods.index("list_exports"), methods.index("grant"))
        self.assertLess(methods.index("revoke"), methods.index("list_exports"))
        self.assertEqual(["fenced", "deleted"], self.timeline(self.source)[-2:])

    def test_timeline_has_begin_and_end(self):
        destination = self.begin_move()
        self.finish(destination)
        found = self.own("GET", f"/attachments/{destination}/timeline").body["timeline"]
        self.assertEqual(
            [
                ("reserved", self.source),
                ("connected", self.source),
                ("move_finished", self.source),
            ],
            [(event["type"], event.get("move_from")) for event in found],
        )
        self.assertEqual("attaching", found[-1]["status"])

    def test_finished_twice_is_finished_once(self):
        destination = self.begin_move()
        self.finish(destination)
        self.driver.calls.clear()
        again = self.finish(destination).body["attachment"]
        self.assertEqual("rw", again["attach_mode"])
        self.assertEqual([], list(self.driver.calls))

    def test_rolled_back_move_leaves_the_source_as_it_was(self):
        before = db_rows.get_attachment(self.source)
        destination = self.begin_move()
        self.own("DELETE", f"/attachments/{destination}")
        self.assertEqual({self.source: "rw"}, self.modes())
        self.assertEqual(before, db_rows.get_attachment(self.source))
        self.assertIn("could not be found", self.finish(destination, 404).fault)
        self.finish(self.begin_move())

    def test_reserved_destination_is_connected_by_put(self):
        answer = self.begin(None).body["attachment"]
        self.assertEqual((self.source, None), (answer["move_from"], answer["one_writer"]))
        body = {"attachment": {"connector": connector(NEW)}}
        self.own("PUT", f"/attachments/{answer['id']}", body)
        self.assertEqual({self.source: "rw", answer["id"]: "ro"}, self.modes())
        self.finish(answer["id"])
        self.assertEqual({answer["id"]: "rw"}, self.modes())

    def test_reserved_destination_cannot_be_finished(self):
        destination = self.begin_move(host=None)
        self.assertIn("Connect it first", self.finish(destination, 409).fault)
        self.assertEqual({self.source: "rw"}, self.modes())

    def test_reading_source_moves_to_a_reader(self):
        self.own("DELETE", f"/attachments/{self.source}")
        self.source = self.attach(OLD, mode="ro")
        destination = self.begin_move()
        self.assertEqual({self.source: "ro", destination: "ro"}, self.modes())
        self.assertIs(False, bool(db_rows.get_attachment(destination)["own_connection"]))
        self.finish(destination)
        self.assertEqual({destination: "ro"}, self.modes())

    def test_driver_without_the_ability_grants_at_once_and_the_answer_says_so(self):
        with mock.patch("attachd.manager.moves.abilities.SwitchMode", type("Other", (), {})):
            answer = self.begin().body["attachment"]
            self.assertIs(False, answer["one_writer"])
            self.assertEqual({self.source: "rw", answer["id"]: "rw"}, self.modes())
            self.finish(answer["id"])
        self.assertEqual({answer["id"]: "rw"}, self.modes())

    def test_attachment_keeps_its_server(self):
        server = new_id()
        self.own("DELETE", f"/attachments/{self.source}")
        self.source = self.attach(OLD, instance_uuid=server)
        self.assertIn(server, self.begin(instance_uuid=new_id(), status=400).fault)
        self.assertEqual(server, self.begin().body["attachment"]["instance"])

    def test_failed_connect_of_the_destination_is_repeated(self):
        with self.driver.failing("grant", final=True):
            self.begin(status=500)
        (failed,) = [row for row in db_rows.list_attachments() if row["id"] != self.source]
        self.assertEqual("connect_failed", failed["state"])
        self.assertEqual(failed["id"], self.begin_move())
        self.assertEqual({self.source: "rw", failed["id"]: "ro"}, self.modes())
        self.finish(failed["id"])
        self.assertEqual({failed["id"]: "rw"}, self.modes())


class FailedDestinationTest(MoveCase):
    """A destination whose connect has failed is connected after its source has gone."""

    def lose_source(self):
        with self.driver.failing("grant", final=True):
            self.begin(status=500)
        (failed,) = [row for row in db_rows.list_attachments() if row["move_from"] == self.source]
        self.own("DELETE", f"/attachments/{self.source}")
        return failed["id"]

    def connect(self, destination):
        body = {"attachment": {"connector": connector(NEW)}}
        self.own("PUT", f"/attachments/{destination}", body)
        recovery = RecoveryLoop(self.api.backend)
        wait_until(
            lambda: recovery.run_once() or not db_rows.get_attachment(destination)["move_from"]
        )

    def test_it_only_reads_a_volume_that_has_become_read_only(self):
        destination = self.lose_source()
        self.act(self.volume, "os-update_readonly_flag", {"readonly": True})
        self.connect(destination)
        self.assertEqual({destination: "ro"}, self.modes())

    def test_it_only_reads_beside_the_writer_that_came_first(self):
        type_id = self.create_type("shared", {"multiattach": "<is> True", "mode": "RO"})
        self.volume = db_rows.add_volume(multiattach=True, volume_type_id=type_id)["id"]
        self.source = self.attach(OLD)
        destination = self.lose_source()
        writer = self.attach(THIRD)
        self.connect(destination)
        self.assertEqual({writer: "rw", destination: "ro"}, self.modes())

    def test_it_writes_if_it_may(self):
        destination = self.lose_source()
        self.connect(destination)
        self.assertEqual({destination: "rw"}, self.modes())


class RefusalTest(MoveCase):
    def test_older_versions_and_other_fields_are_refused(self):
        values = {"volume_uuid": self.volume, "move_from": self.source}
        for version in (wsgi_api.LATEST, f"{wsgi_api.LATEST}, attachd 1.0"):
            answer = self.expect(
                400, "POST", "/attachments", {"attachment": values}, version=version
            )
            self.assertIn("attachd 1.1", answer.fault)
        self.assertIn("instead_of", self.begin(instead_of=self.source, status=400).fault)
        path = f"/attachments/{self.source}/action"
        self.expect(404, "POST", path, {"finish_move": {}}, version=f"{wsgi_api.LATEST}")

    def test_source_of_another_volume_is_refused(self):
        other = db_rows.add_volume()["id"]
        self.assertIn(self.volume, self.begin(volume_uuid=other, status=400).fault)

    def test_unknown_source_is_not_found(self):
        self.begin(move_from=new_id(), status=404)

    def test_same_host_is_refused(self):
        self.assertIn("on host compute-1 already", self.begin(OLD, 409).fault)
        self.assertEqual([self.source], [row["id"] for row in db_rows.list_attachments()])

    def test_source_without_access_is_refused(self):
        volume = db_rows.add_volume()["id"]
        reserved = self.create_attachment(volume)
        said = self.begin(volume_uuid=volume, move_from=reserved, status=409).fault
        self.assertIn("no host has access", said)

    def test_source_moves_once_at_a_time(self):
        destination = self.begin_move()
        self.assertIn(destination, self.begin(THIRD, 409).fault)
        self.assertIn("destination of a move", self.begin(move_from=destination, status=409).fault)

    def test_chain_of_moves_one_after_the_other_is_allowed(self):
        for host in (NEW, THIRD, OLD):
            destination = self.begin_move(host=host)
            self.finish(destination)
            self.source = destination
        self.assertEqual({self.source: "rw"}, self.modes())

    def test_attachment_that_does_not_move_cannot_be_finished(self):
        self.assertIn("not the destination", self.finish(self.source, 409).fault)

    def test_other_attachments_are_refused_beside_a_move(self):
        self.begin()
        body = {"attachment": {"volume_uuid": self.volume, "connector": connector(THIRD)}}
        self.own("POST", "/attachments", body, 400)

    def test_further_attachments_of_the_server_are_refused_beside_a_move(self):
        server = new_id()
        self.own("DELETE", f"/attachments/{self.source}")
        self.source = self.attach(OLD, instance_uuid=server)
        self.own("POST", f"/attachments/{self.source}/action", {"os-complete": None}, 204)
        early = self.create_attachment(self.volume, instance_uuid=server)
        destination = self.begin_move()
        for host in (OLD, NEW, THIRD):
            values = {"volume_uuid": self.volume, "instance_uuid": server}
            for more in ({}, {"connector": connector(host)}):
                self.own("POST", "/attachments", {"attachment": {**values, **more}}, 400)
            body = {"attachment": {"connector": connector(host)}}
            self.own("PUT", f"/attachments/{early}", body, 409)
        self.assertEqual({self.source: "rw", destination: "ro"}, self.modes())
        self.own("DELETE", f"/attachments/{self.source}")
        self.assertEqual({destination: "rw"}, self.modes())
        self.attach(THIRD, instance_uuid=server)

    def test_attachment_in_a_move_is_not_replaced_by_force(self):
        destination = self.begin_move()
        for old in (self.source, destination):
            values = {"volume_uuid": self.volume, "connector": connector(THIRD), "instead_of": old}
            answer = self.own(
                "POST", "/attachments", {"attachment": values}, 409, token=wsgi_api.ADMIN
            )
            self.assertIn("one end of a move", answer.fault)
        self.assertEqual({self.source: "rw", destination: "ro"}, self.modes())

    def test_dry_run_decides_as_the_move_does(self):
        path = "/attachments?dry_run=true"
        found = self.begin(path=path).body["dry_run"]
        self.assertEqual((True, "rw"), (found["possible"], found["attach_mode"]))
        found = self.begin(OLD, path=path).body["dry_run"]
        self.assertIn("on host compute-1 already", found["reasons"][0]["message"])
        self.assertEqual([self.source], [row["id"] for row in db_rows.list_attachments()])

    def test_readers_may_not_move(self):
        values = {"volume_uuid": self.volume, "move_from": self.source}
        self.own("POST", "/attachments", {"attachment": values}, 403, token=wsgi_api.READER)
        self.finish(self.begin_move(), 403, wsgi_api.READER)


class SharedHostTest(MoveCase):
    """The host of the source has another attachment of the volume, so that its access stays."""

    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(multiattach=True)["id"]
        self.source = self.attach(OLD, instance_uuid=new_id())

    def attach_beside(self):
        self.beside = self.attach(OLD, instance_uuid=new_id())

    def assert_refused(self, said):
        self.assertIn(f"Attachment {self.source} cannot be moved", said)
        self.assertIn(self.beside, said)
        self.assertEqual("connected", db_rows.get_attachment(self.source)["state"])
        self.assertEqual("rw", self.modes()[self.source])

    def test_move_and_dry_run_are_refused(self):
        self.attach_beside()
        self.assert_refused(self.begin(status=409).fault)
        found = self.begin(path="/attachments?dry_run=true").body["dry_run"]
        self.assertFalse(found["possible"])
        self.assert_refused(found["reasons"][0]["message"])

    def test_open_move_is_finished_after_other_attachment_is_deleted(self):
        destination = self.begin_move()
        self.attach_beside()
        self.assert_refused(self.finish(destination, 409).fault)
        self.own("DELETE", f"/attachments/{self.beside}")
        self.finish(destination)
        self.assertEqual({destination: "rw"}, self.modes())

    def test_reservation_without_host_is_no_obstacle(self):
        reserved = self.create_attachment(self.volume, instance_uuid=new_id())
        destination = self.begin_move()
        self.finish(destination)
        self.assertEqual({destination: "rw"}, self.modes())
        self.own("DELETE", f"/attachments/{reserved}")


class RepetitionTest(MoveCase):
    def test_repeated_request_without_a_key_is_one_move(self):
        self.assertEqual(self.begin_move(), self.begin_move())

    def test_repeated_request_with_a_key_gets_the_first_answer(self):
        headers = {"idempotency_key": '"move"'}
        first = self.begin_move(headers=headers)
        self.finish(first)
        again = self.begin(headers=headers).body["attachment"]
        self.assertEqual(first, again["id"])

    def test_asynchronous_destination_reads_until_the_move_is_finished(self):
        headers = {"prefer": "respond-async"}
        destination = self.begin(status=202, headers=headers).body["attachment"]["id"]
        wait_until(lambda: db_rows.get_attachment(destination)["state"] == "connected")
        self.assertEqual({self.source: "rw", destination: "ro"}, self.modes())
        self.finish(destination)
        self.assertEqual({destination: "rw"}, self.modes())


class FailureTest(MoveCase):
    def setUp(self):
        super().setUp()
        self.destination = self.begin_move()

    def recover(self):
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or self.modes() == {self.destination: "rw"})

    def test_source_that_cannot_be_ended_keeps_the_destination_reading(self):
        with self.driver.failing("revoke", "revoke_all_except"):
            said = self.finish(self.destination, 500).fault
        self.assertIn(self.source, said)
        self.assertEqual("ro", self.modes()[self.destination])
        self.assertEqual("disconnect_failed", db_rows.get_attachment(self.source)["state"])
        said = self.own("DELETE", f"/attachments/{self.destination}", status=409).fault
        self.assertIn("can no longer be rolled back", said)
        self.finish(self.destination)
        self.assertEqual({self.destination: "rw"}, self.modes())

    def test_unproved_end_of_the_source_keeps_the_destination_reading(self):
        with mock.patch.object(self.driver, "_forget"):
            self.assertIn("still lists access", self.finish(self.destination, 500).fault)
        self.assertEqual("ro", self.modes()[self.destination])
        self.recover()
        self.assertIn("fenced", self.timeline(self.source))

    def test_failed_switch_is_repeated_by_the_caller(self):
        with self.driver.failing("grant"):
            said = self.finish(self.destination, 500).fault
        self.assertIn(f"Attachment {self.destination} only reads yet", said)
        self.assertEqual({self.destination: "ro"}, self.modes())
        self.finish(self.destination)
        self.assertEqual({self.destination: "rw"}, self.modes())

    def test_failed_switch_is_repeated_by_recovery(self):
        with self.driver.failing("grant"):
            self.finish(self.destination, 500)
        self.recover()
        self.assertEqual("rw", self.shown(self.destination)["attach_mode"])
        self.assertIsNone(db_rows.get_attachment(self.destination)["move_from"])

    def test_backend_that_cannot_fence_detaches(self):
        with mock.patch("attachd.manager.fencing.get_fencing", return_value=Fencing.NONE):
            self.finish(self.destination)
        self.assertNotIn("fenced", self.timeline(self.source))
        self.assertEqual({self.destination: "rw"}, self.modes())

    def test_destination_can_be_deleted_by_force_while_the_source_is_stuck(self):
        with self.driver.failing("revoke", "revoke_all_except"):
            self.finish(self.destination, 500)
        path = f"/attachments/{self.destination}?force=true"
        self.own("DELETE", path, token=wsgi_api.ADMIN)
        self.assertEqual([self.source], [row["id"] for row in db_rows.list_attachments()])

    def test_rollback_that_came_first_is_not_finished(self):
        reached, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def script(call):
            if call.method == "revoke":
                reached.set()
                go.wait()

        self.driver.script = script
        self.addCleanup(setattr, self.driver, "script", None)
        path = f"/attachments/{self.destination}"
        rollback = threading.Thread(target=self.own, args=("DELETE", path))
        rollback.start()
        self.addCleanup(rollback.join)
        self.assertTrue(reached.wait(30))
        answers = []
        finish = threading.Thread(
            target=lambda: answers.append(
                self.api.request(
                    "POST", f"{path}/action", {"finish_move": {}}, version=VERSION
                ).status
            )
        )
        finish.start()
        go.set()
        finish.join()
        rollback.join()
        self.assertIn(answers, ([404], [409]))
        self.assertEqual({self.source: "rw"}, self.modes())


class EndOfTheSourceTest(MoveCase):
    """The destination writes as soon as its source has no access, for any reason."""

    def setUp(self):
        super().setUp()
        self.destination = self.begin_move()

    def tearDown(self):
        # A fence answers with the row of the source gone, and the manager goes on.
        wait_until(lambda: events.has_moved(self.destination))
        self.assertEqual({self.destination: "rw"}, self.modes())
        super().tearDown()

    def test_deleted_source(self):
        self.own("DELETE", f"/attachments/{self.source}")

    def test_source_deleted_by_force(self):
        self.own("DELETE", f"/attachments/{self.source}?force=true", token=wsgi_api.ADMIN)

    def test_source_whose_host_is_fenced(self):
        body = {"fence": {"reason": "dead"}}
        self.own("POST", f"/hosts/{OLD}/fence", body, token=wsgi_api.ADMIN)

    def test_source_that_ended_while_the_backend_could_not_switch(self):
        with self.driver.failing("grant"):
            self.own("DELETE", f"/attachments/{self.source}")
        self.assertEqual("ro", self.shown(self.destination)["attach_mode"])
        self.finish(self.destination)


class VolumeTest(MoveCase):
    """Other calls for the volume while a move is open."""

    def setUp(self):
        super().setUp()
        self.destination = self.begin_move()
        self.before = self.modes()

    def test_reset_of_the_status_finds_no_difference(self):
        for attachment in (self.source, self.destination):
            self.own("POST", f"/attachments/{attachment}/action", {"os-complete": None}, 204)
        self.act(self.volume, "os-reset_status", {"status": "in-use"}, token=wsgi_api.ADMIN)
        self.assertEqual(self.before, self.modes())

    def test_volume_is_not_deleted(self):
        self.own("DELETE", f"/volumes/{self.volume}", status=400)
        self.assertEqual(self.before, self.modes())

    def test_extend_keeps_both_modes(self):
        for attachment in (self.source, self.destination):
            self.own("POST", f"/attachments/{attachment}/action", {"os-complete": None}, 204)
        self.act(self.volume, "os-extend", {"new_size": 2})
        wait_until(lambda: db_rows.get_volume(self.volume)["size_gib"] == 2)
        (call,) = [call for call in self.driver.calls if call.method == "extend"]
        self.assertEqual({self.source, self.destination}, set(call.others))
        self.finish(self.destination)

    def test_restarted_backend_has_both_modes_again(self):
        self.driver.restart()
        task = EnsureExportsTask(self.api.backend)
        wait_until(lambda: task.run_once() or self.modes() == self.before)
        self.finish(self.destination)

    def test_forced_deletion_of_the_volume_ends_both(self):
        self.act(self.volume, "os-force_delete", token=wsgi_api.ADMIN)
        wait_until(lambda: not db_rows.list_attachments())


class HostOfTheDestinationTest(MoveCase):
    def test_fence_of_the_new_host_rolls_the_move_back(self):
        self.begin()
        body = {"fence": {"reason": "dead"}}
        self.own("POST", f"/hosts/{NEW}/fence", body, token=wsgi_api.ADMIN)
        self.assertEqual({self.source: "rw"}, self.modes())
        self.finish(self.begin_move(host=THIRD))

    def test_source_that_ends_before_the_destination_is_connected_leaves_a_writer(self):
        destination = self.begin_move(host=None)
        self.own("DELETE", f"/attachments/{self.source}")
        body = {"attachment": {"connector": connector(NEW)}}
        self.own("PUT", f"/attachments/{destination}", body)
        self.assertEqual({destination: "rw"}, self.modes())
        recovery = RecoveryLoop(self.api.backend)
        wait_until(
            lambda: recovery.run_once() or not db_rows.get_attachment(destination)["move_from"]
        )
        self.assertEqual({destination: "rw"}, self.modes())


class AgentTest(HostAttachCase):
    """A move between two hosts with agents."""

    def setUp(self):
        super().setUp()
        BackendHeartbeat(self.api.backend).run_once()
        self.other = fake_agent.FakeAgent(self, NEW)
        self.source = self.attached()
        answer = self.own("POST", "/attachments", self.body(NEW)).body["attachment"]
        self.destination = answer["id"]
        self.assertEqual(("attached", "ro"), (answer["status"], answer["attach_mode"]))

    def body(self, host):
        fields = {"volume_uuid": self.volume, "host": host, "move_from": self.source}
        return {"attachment": fields}

    def own(self, method, path, body=None, status=200, **headers):
        options = {"token": wsgi_api.ADMIN, "version": VERSION, **headers}
        answer = self.api.request(method, path, body, **options)
        self.assertEqual(status, answer.status, answer.raw)
        return answer

    def finish(self, status=200):
        path = f"/attachments/{self.destination}/action"
        return self.own("POST", path, {"finish_move": None}, status)

    def modes(self):
        return dict(self.driver._granted.get(self.volume, {}))

    def recover(self, modes):
        recovery = RecoveryLoop(self.api.backend)
        wait_until(lambda: recovery.run_once() or self.modes() == modes)

    def test_agent_of_the_source_removes_the_device_first(self):
        self.driver.calls.clear()
        self.agent.before_work = lambda: self.assertEqual([], [*self.driver.calls])
        self.other.requested.clear()
        self.assertEqual("rw", self.finish().body["attachment"]["attach_mode"])
        self.assertEqual({}, self.agent.devices)
        self.assertEqual({self.destination: "rw"}, self.modes())
        wait_until(lambda: self.other.requested == [self.destination])

    def test_busy_device_of_the_source_keeps_the_move_open(self):
        self.agent.is_busy = True
        self.assertIn(fake_agent.BUSY, self.finish(409).fault)
        self.assertEqual({self.source: "rw", self.destination: "ro"}, self.modes())
        self.assertEqual("attached", db_rows.get_attachment(self.source)["state"])
        self.own("DELETE", f"/attachments/{self.destination}")
        self.assertEqual(({}, {self.source: "rw"}), (self.other.devices, self.modes()))

    def test_silent_agent_of_the_source_is_awaited(self):
        self.agent.be_silent(self)
        self.finish(504)
        self.assertEqual("withdrawing", db_rows.get_attachment(self.source)["state"])
        said = self.own("DELETE", f"/attachments/{self.destination}", status=409).fault
        self.assertIn("can no longer be rolled back", said)
        self.agent.resume()
        self.recover({self.destination: "rw"})
        self.finish()

    def test_lost_agent_of_the_source_is_fenced_by_its_host(self):
        fake_agent.expire_heartbeat(HOST)
        self.assertIn("force", self.finish(409).fault)
        self.own("POST", f"/hosts/{HOST}/fence", {"fence": {"reason": "dead"}})
        # The manager ends the move after the row of the source.
        wait_until(lambda: self.modes() == {self.destination: "rw"})
        self.finish()

    def test_drained_host_of_the_source_finishes_the_move(self):
        self.own("POST", f"/hosts/{HOST}/drain", {"drain": {"detach": "all"}})
        # The manager ends the move after the row of the source.
        wait_until(lambda: self.modes() == {self.destination: "rw"})

    def test_drained_host_of_the_destination_rolls_the_move_back(self):
        self.own("POST", f"/hosts/{NEW}/drain", {"drain": {"detach": "all"}})
        self.assertEqual({self.source: "rw"}, self.modes())
        self.own("POST", "/attachments", self.body(NEW), 409)

    def test_rollback_in_progress_keeps_the_source(self):
        self.other.be_silent(self)
        self.own("DELETE", f"/attachments/{self.destination}", status=504)
        self.assertIn("withdrawing", self.finish(409).fault)
        self.assertEqual("attached", db_rows.get_attachment(self.source)["state"])
        self.other.resume()
        self.recover({self.source: "rw"})


class SharedVolumeTest(MoveCase):
    def shared(self, **specs):
        type_id = self.create_type("shared", {"multiattach": "<is> True", **specs})
        self.volume = db_rows.add_volume(multiattach=True, volume_type_id=type_id)["id"]
        self.source = self.attach(OLD)

    def test_move_counts_as_one_attachment(self):
        self.shared(max_attachments="1")
        destination = self.begin_move()
        body = {"attachment": {"volume_uuid": self.volume, "connector": connector(THIRD)}}
        self.own("POST", "/attachments", body, 400)
        self.finish(destination)

    def test_destination_takes_over_the_place_of_the_single_writer(self):
        self.shared(mode="RO")
        destination = self.begin_move()
        reader = self.attach(THIRD)
        expected = {self.source: "rw", destination: "ro", reader: "ro"}
        self.assertEqual(expected, self.modes())
        with self.driver.failing("grant"), contextlib.suppress(AssertionError):
            self.finish(destination, 500)
        another = self.attach("compute-4")
        self.assertEqual("ro", self.modes()[another])
        self.finish(destination)
        self.assertEqual({destination: "rw", reader: "ro", another: "ro"}, self.modes())
