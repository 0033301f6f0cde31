# SPDX-License-Identifier: Apache-2.0
"""An administrator chooses the machine of a host; the command is tested in cmd/test_agents.py."""

import datetime

from attachd import exception
from attachd.db import models
from attachd.db.agents import accept_machine, agent_store, machines
from attachd.db.agents.machines import Claim
from attachd.tests.fixtures import databases, db_rows

HOST, KEY = "node-1", "k" * 43
FIRST = Claim("b1", "m1", "p1", 3, 1, "t0", "t1")
OTHER = Claim("b2", "m2", "p2", 4, 1, "s0", "s1")


class AcceptMachineTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        agent_store.create(HOST, KEY)
        self.report(FIRST)

    def report(self, claim):
        row = agent_store.check_key(HOST, KEY)
        agent_store.record_report(HOST, machines.accept(row, claim), read=row)

    def conflict(self, other=OTHER):
        with self.assertRaises(exception.AgentConflict):
            self.report(other)

    def attach(self, origin="b1:0"):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "attached", agent=HOST, device_origin=origin)

    def origin(self):
        return db_rows.list_attachments()[0]["device_origin"]

    def test_machine_that_stays_keeps_its_devices_and_the_other_is_refused(self):
        self.attach()
        self.conflict()
        accept_machine.accept(HOST, "b1", devices_gone=False)
        self.report(FIRST._replace(number=2, previous="t1", next="t2"))
        with self.assertRaises(exception.MachineRefused):
            self.report(OTHER._replace(number=2))
        self.assertEqual(("up", "b1:0"), (agent_store.state(agent_store.get(HOST)), self.origin()))

    def test_other_machine_is_accepted_and_goes_on_with_its_token(self):
        self.conflict()
        accept_machine.accept(HOST, "b2", devices_gone=False)
        self.report(OTHER._replace(number=2))
        self.report(OTHER._replace(number=3, previous="s1", next="s2"))
        with self.assertRaises(exception.MachineRefused):
            self.report(FIRST._replace(number=2))
        self.assertEqual("b2", agent_store.get(HOST)["boot_id"])

    def test_other_machine_is_not_accepted_while_the_former_may_have_devices(self):
        self.attach()
        self.conflict()
        with self.assertRaisesRegex(exception.Conflict, "1 attachments.*boot b1.*--devices-gone"):
            accept_machine.accept(HOST, "b2", devices_gone=False)
        accept_machine.accept(HOST, "b2", devices_gone=True)
        self.assertIsNone(self.origin())

    def test_machine_that_was_accepted_before_may_have_devices_too(self):
        self.attach()
        self.conflict(OTHER._replace(is_known=True))
        with self.assertRaisesRegex(exception.Conflict, "boot b2"):
            accept_machine.accept(HOST, "b1", devices_gone=False)

    def test_machine_whose_device_is_stored_may_have_it_after_a_restart_of_its_agent(self):
        self.attach(origin="b1:0")
        long_ago = models.now() - datetime.timedelta(seconds=100)
        db_rows.change_agent(HOST, heartbeat_at=long_ago)
        self.report(Claim("b2", "m1", "p2", 4, 1, "t1", "t2"))
        self.conflict(Claim("b1", "m1", "p3", 5, 1, "t0", "t1", is_repeated=True))
        with self.assertRaisesRegex(exception.Conflict, "1 attachments.*boot b1.*--devices-gone"):
            accept_machine.accept(HOST, "b2", devices_gone=False)
        self.assertEqual("conflict", agent_store.state(agent_store.get(HOST)))

    def test_next_machine_is_accepted_once(self):
        accept_machine.accept(HOST, None, devices_gone=False)
        with self.assertRaises(exception.MachineRefused):
            self.report(FIRST._replace(number=2))
        self.report(Claim("b3", "m3", "p3", 1, 1, None, "u1"))
        self.conflict(OTHER)

    def test_two_agents_of_one_machine_need_one_to_be_stopped(self):
        self.conflict(OTHER._replace(boot_id="b1"))
        accept_machine.accept(HOST, "b1", devices_gone=False)
        self.report(FIRST._replace(number=2, previous="t1", next="t2"))
        self.assertEqual("up", agent_store.state(agent_store.get(HOST)))
