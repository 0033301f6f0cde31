# SPDX-License-Identifier: Apache-2.0
"""Tests of deleting attachments of Compute, whose hosts report the devices that are still there.

The agents are scripted, behind the message queue; test_other_devices.py has real ones.
"""

import time
from unittest import mock
import uuid

from attachd import exception
from attachd.api.agents import device_check
from attachd.db import models
from attachd.db.agents import observed_devices
from attachd.db.engine import session
from attachd.host_identity import HostIdentity
from attachd.rpc.agent_manager_api import MAX_OBSERVED
from attachd.tests import concurrency
from attachd.tests.fixtures import conf_fixture, databases, db_rows, fake_agent, wsgi_api
from attachd.tests.functional.test_compute_attachments import (
    CONNECTOR,
    OTHER,
    SECOND,
    SERVER,
    ComputeCase,
)

HOST = CONNECTOR["host"]
ATTACHD_1_0 = {"version": f"{wsgi_api.LATEST}, attachd 1.0", "token": wsgi_api.ADMIN}


class Case(ComputeCase):
    def setUp(self):
        super().setUp()
        self.agent = fake_agent.FakeAgent(self, HOST)
        self.agent.report_others([])
        self.enterContext(mock.patch.object(device_check, "_absence", device_check._Absence()))

    def device(self, volume=None, **values):
        volume = volume or self.volume
        target = f"iqn.2030-01.org.example:{volume}"
        fields = {"volume_id": volume, "attachment_id": None, "target": target}
        return {**fields, "path": "/dev/sdb", "size_bytes": 2**30, **values}

    def connect_device(self, **values):
        """Have the host connect what it was given, as nova-compute does."""
        self.agent.other_devices = [self.device(**values)]

    def disconnect_device(self):
        self.agent.other_devices = []

    def used(self, **options):
        """Return an attachment whose host has the device."""
        attachment = self.attach(**options)
        self.connect_device()
        return attachment

    def assert_refused(self, attachment, answer):
        self.assertEqual("attachd.device_present", self.reason(answer))
        for part in (HOST, "/dev/sdb", "force=true", "volume host fence"):
            self.assertIn(part, answer.fault)
        self.assertEqual("attached", db_rows.get_attachment(attachment)["state"])
        self.assertIn(attachment, self.driver.granted())

    def reason(self, answer):
        (fault,) = answer.body.values()
        return fault.get("reason_code")

    def assert_deleted(self, attachment):
        found = {row["id"] for row in db_rows.list_attachments(self.volume)}
        self.assertNotIn(attachment, found)
        self.assertNotIn(attachment, self.driver.granted())

    def statements(self, attachment):
        before = session.counters().statements
        self.delete(attachment)
        return session.counters().statements - before


class DeletionTest(Case):
    def test_attachment_whose_device_is_there_stays_until_it_is_gone(self):
        attachment = self.used()
        self.begin_detaching()
        self.assert_refused(attachment, self.delete(attachment, 409, **ATTACHD_1_0))
        self.act(self.volume, "os-roll_detaching")
        self.assertEqual("in-use", self.status())
        self.begin_detaching()
        self.disconnect_device()
        self.delete(attachment)
        self.assert_deleted(attachment)
        self.assertEqual("available", self.status())

    def test_device_that_was_there_in_the_last_report_does_not_count(self):
        attachment = self.used()
        self.agent.report_others(self.agent.other_devices)
        self.disconnect_device()
        self.delete(attachment)
        self.assertEqual(1, len(self.agent.asked))

    def test_report_in_flight_does_not_answer_the_question(self):
        attachment = self.used()
        stale = self.agent.other_devices
        self.disconnect_device()
        # It was made before the question, and arrives after it.
        self.agent.before_work = lambda: fake_agent.report(
            HOST, observed={"devices": stale, "asked": ["0" * 32]}
        )
        self.delete(attachment)
        self.assert_deleted(attachment)

    def test_asynchronous_deletion_is_refused_as_well(self):
        attachment = self.used()
        answer = self.delete(attachment, 409, prefer="respond-async", **ATTACHD_1_0)
        self.assert_refused(attachment, answer)

    def test_force_does_not_ask_the_host(self):
        attachment = self.used()
        path = f"/attachments/{attachment}?force=true"
        self.expect(200, "DELETE", path, **ATTACHD_1_0)
        self.assert_deleted(attachment)
        self.assertEqual([], self.agent.asked)

    def test_silent_agent_delays_a_deletion_by_a_bounded_time(self):
        attachment = self.used()
        self.enterContext(mock.patch.object(device_check, "TIMEOUT", 0.5))
        self.agent.is_silent = True
        self.addCleanup(self.agent.resume)
        started = time.monotonic()
        with self.assertLogs("attachd.api.agents.device_check", "WARNING"):
            self.delete(attachment)
        self.assertLess(time.monotonic() - started, 20)
        self.assert_deleted(attachment)

    def test_agent_that_counts_as_down_is_not_asked(self):
        attachment = self.used()
        fake_agent.expire_heartbeat(HOST)
        self.delete(attachment)
        self.assertEqual([], self.agent.asked)

    def test_agent_without_the_ability_is_not_asked(self):
        attachment = self.used()
        db_rows.change_agent(HOST, observed=None)
        self.delete(attachment)
        self.assertEqual([], self.agent.asked)

    def test_attachment_that_is_deleted_meanwhile_is_not_found(self):
        attachment = self.used()
        path = f"/attachments/{attachment}?force=true"
        self.agent.before_work = lambda: self.expect(200, "DELETE", path, **ATTACHD_1_0)
        self.disconnect_device()
        self.delete(attachment, 404)

    def test_parallel_deletions_of_one_host_are_answered_each(self):
        volumes = [self.volume, *(self.add_volume() for _ in range(7))]
        attachments = {volume: self.attach(volume=volume) for volume in volumes}
        kept = volumes[::2]
        self.agent.other_devices = [self.device(volume) for volume in kept]

        def delete(volume):
            status = 409 if volume in kept else 200
            return lambda: self.delete(attachments[volume], status) and None

        outcomes = concurrency.run_at_once(*map(delete, volumes))
        self.assertEqual([None] * len(volumes), outcomes)
        self.assertEqual({attachments[volume] for volume in kept}, self.driver.granted())

    def test_statements_of_a_deletion(self):
        elsewhere = {**SECOND, "host": "compute-9", "initiator": "iqn.2026-01.org.example:c9"}
        self.statements(self.attach(connector=elsewhere))  # It reads whether there are agents.
        before = self.statements(self.attach(connector=elsewhere))
        conf_fixture.override(self, "enabled", False, "agent")
        without = self.statements(self.attach(connector=elsewhere))
        conf_fixture.override(self, "enabled", True, "agent")
        self.assertEqual((1, []), (before - without, self.agent.asked))
        db_rows.change_agent(HOST, observed=None)
        self.enterContext(mock.patch.object(device_check, "_absence", device_check._Absence()))
        self.statements(self.attach(connector=elsewhere))
        self.assertEqual(without, self.statements(self.attach(connector=elsewhere)))
        reservation = self.statements(self.reserve())
        conf_fixture.override(self, "enabled", False, "agent")
        self.assertEqual(reservation, self.statements(self.reserve()))


class FlowsOfComputeTest(Case):
    """The order of calls of Nova's manager."""

    def setUp(self):
        super().setUp()
        self.destination = fake_agent.FakeAgent(self, SECOND["host"])
        self.destination.report_others([])

    def begin_migration(self):
        """Connect the destination, before the cut-over."""
        return self.create_attachment(self.volume, instance_uuid=SERVER, connector=SECOND)

    def test_live_migration_deletes_the_source_while_the_destination_has_the_device(self):
        source = self.used()
        target = self.begin_migration()
        self.destination.other_devices = [self.device()]
        self.disconnect_device()
        self.complete(target)
        self.delete(source)
        self.assertEqual({target}, self.driver.granted())

    def test_live_migration_whose_source_keeps_the_device_keeps_its_attachment(self):
        source = self.used()
        target = self.begin_migration()
        self.destination.other_devices = [self.device()]
        self.complete(target)
        self.assert_refused(source, self.delete(source, 409, **ATTACHD_1_0))

    def test_rollback_of_a_live_migration_deletes_the_destination(self):
        source = self.used()
        target = self.begin_migration()
        self.destination.other_devices = [self.device()]
        self.delete(target, 409)
        self.destination.other_devices = []
        self.delete(target)
        self.assertEqual({source}, self.driver.granted())

    def test_evacuation_from_a_host_that_is_down_deletes_the_source(self):
        source = self.used()
        fake_agent.expire_heartbeat(HOST)
        target = self.reserve()
        self.delete(source)
        self.connect(target, SECOND)
        self.complete(target)

    def test_second_server_of_a_host_keeps_the_device(self):
        self.volume = self.add_volume(multiattach=True)
        first = self.used()
        second = self.attach(OTHER)
        self.delete(first)
        self.assert_refused(second, self.delete(second, 409, **ATTACHD_1_0))


class OlderCallsTest(Case):
    """os-terminate_connection and os-detach, which name no attachment of their own."""

    def setUp(self):
        super().setUp()
        self.act(self.volume, "os-reserve")
        body = {"connector": CONNECTOR}
        self.act(self.volume, "os-initialize_connection", body, 200)
        self.connect_device()

    def attach_by_older_call(self):
        body = {"instance_uuid": SERVER, "mountpoint": "/dev/vdb"}
        self.act(self.volume, "os-attach", body)

    def test_terminate_connection_with_present_device_keeps_the_access(self):
        for connector in (CONNECTOR, {}):
            body = {"connector": connector}
            answer = self.act(self.volume, "os-terminate_connection", body, 409)
            self.assertIn("/dev/sdb", answer.fault)
        self.assertEqual(1, len(self.driver.granted()))
        self.disconnect_device()
        self.act(self.volume, "os-terminate_connection", {"connector": CONNECTOR})
        self.assertEqual(set(), self.driver.granted())

    def test_detach_with_present_device_keeps_the_attachment(self):
        self.attach_by_older_call()
        self.act(self.volume, "os-detach", status=409)
        self.assertEqual(1, len(self.driver.granted()))
        self.assertEqual("in-use", self.status())
        self.disconnect_device()
        self.act(self.volume, "os-detach")
        self.assertEqual((set(), "available"), (self.driver.granted(), self.status()))

    def test_forced_detach_does_not_ask_the_host(self):
        self.attach_by_older_call()
        body = {"attachment_id": None, "connector": CONNECTOR}
        self.act(self.volume, "os-force_detach", body, token=wsgi_api.ADMIN)
        self.assertEqual((set(), []), (self.driver.granted(), self.agent.asked))


class HostileHostTest(Case):
    """A host that reports what it likes concerns no other host."""

    def setUp(self):
        super().setUp()
        self.mallory = fake_agent.FakeAgent(self, "mallory")
        self.mallory.report_others([])

    def claim(self, count=MAX_OBSERVED, **values):
        found = [self.device(**values), *(self.device(f"{uuid.uuid4()}") for _ in range(count))]
        self.mallory.report_others(found[:count])

    def test_claims_about_volumes_of_other_hosts_have_no_effect(self):
        attachment = self.attach()
        for values in ({}, {"attachment_id": attachment}, {"path": None, "size_bytes": None}):
            self.claim(**values)
        self.delete(attachment)
        self.assertEqual((1, []), (len(self.agent.asked), self.mallory.asked))

    def test_reports_beyond_the_limits_are_refused_and_change_nothing(self):
        before = self.stored()
        garbage = ([{"volume_id": 7}], [self.device(path="/dev/sd\n")], [self.device(more=1)])
        for found in ([self.device()] * (MAX_OBSERVED + 1), *garbage):
            with self.assertRaises(exception.InvalidInput):
                self.mallory.report_others(found)
        self.assertEqual(before, self.stored())

    def stored(self):
        (row,) = (row for row in db_rows.list_agents() if row["host"] == "mallory")
        return row["observed"], row["seen_at"]

    def test_host_that_claims_an_initiator_of_another_does_not_become_it(self):
        attachment = self.attach()
        fake_agent.report(
            "mallory",
            connector={**CONNECTOR, "host": "mallory"},
            observed={"devices": [self.device()], "asked": []},
        )
        self.delete(attachment)
        self.assertEqual([], self.mallory.asked)

    def test_host_that_lies_about_its_own_device_is_overruled_by_force(self):
        attachment = self.attach(connector={**CONNECTOR, "host": "mallory", "initiator": "iqn.m"})
        self.mallory.other_devices = [self.device()]
        self.delete(attachment, 409)
        self.expect(200, "DELETE", f"/attachments/{attachment}?force=true", **ATTACHD_1_0)
        self.assert_deleted(attachment)


class FindOnMariadbTest(databases.DatabaseCase):
    """The statement that finds the agent of a host."""

    kind = "mariadb"

    def test_agent_is_found_by_name_and_initiator(self):
        for number in range(3):
            observed = {"devices": [], "asked": []}
            fake_agent.report_agent(f"compute-{number}", observed=observed)
        initiator = "iscsi:iqn.2026-01.org.example:compute-1"
        for identity in (
            HostIdentity("compute-1"),
            HostIdentity("Compute-1.example.org", frozenset({initiator})),
            HostIdentity("x", frozenset({initiator})),
        ):
            found = observed_devices.find_agent(identity)
            self.assertEqual("compute-1", found and found["host"])
        self.assertIsNone(observed_devices.find_agent(HostIdentity("compute-9")))
        self.assertLess(found["seen_at"], models.now())


class FindOnPostgresqlTest(FindOnMariadbTest):
    kind = "postgresql"
