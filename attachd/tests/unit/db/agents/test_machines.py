# SPDX-License-Identifier: Apache-2.0
"""Which machine is the agent of a host: the rules, and the protocol of tokens.

The protocol is run with the agent's own part of it, and with messages that are lost, repeated,
delayed and overtaken, and agents that are killed between any two steps.
"""

import copy
import datetime
import itertools
import random
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import report_tokens
from attachd.agent.report_tokens import ReportTokens
from attachd.db import host_fences, models
from attachd.db.agents import accept_machine, agent_store, machines
from attachd.db.agents.machines import Claim, Verdict
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.selection import full_only

HOST, KEY = "node-1", "k" * 43
EMPTY = dict.fromkeys(machines._COLUMNS)


class MemoryTokens(ReportTokens):
    """Tokens on a disk that is a dictionary."""

    def __init__(self, disk):
        self.disk = disk
        super().__init__(mock.MagicMock(), HOST)

    def _read(self):
        return dict(self.disk)

    def _write(self, values):
        self.disk.clear()
        self.disk.update(values)


class Machine:
    """A machine with an agent.

    :ivar sent: the messages that it has sent, as claims
    """

    def __init__(self, name, disk):
        self.name, self.disk, self.boots = name, disk, 0
        self.sent = []
        self.restart()

    def restart(self):
        """Kill the agent, and start it again."""
        self.tokens = MemoryTokens(self.disk)
        self.latest = None

    def reboot(self):
        self.boots += 1
        self.restart()

    def store(self):
        self.tokens.store()

    def send(self):
        self.store()
        self.latest = self.tokens.take()
        claim = Claim(f"boot-{self.name}-{self.boots}", "the same machine id", **self.latest)
        self.sent.append(claim)

    def answer(self, claim, verdict, start):
        """Get the answer to a message, unless it comes too late."""
        if self.latest is None or self.sent[-1] is not claim:
            return
        if verdict is Verdict.OLD:
            self.tokens.record_old(start)
        elif verdict is not Verdict.CONFLICT:
            self.tokens.record_accepted(self.latest)
        self.latest = None


class Manager:
    """The row of a host."""

    def __init__(self):
        self.row = {**EMPTY, "host": HOST}

    def store(self, claim):
        """Store a report as managers do; return what it is."""
        start, verdict = self.row["report_start"], machines.judge(self.row, claim)
        if verdict not in {Verdict.OLD, Verdict.CONFLICT}:
            self.row |= machines.get_values(self.row, claim, verdict)
        return verdict, start


STEPS = ("store", "send", "deliver", "deliver unanswered", "deliver first", "restart", "reboot")


class World:
    """One machine and a manager."""

    def __init__(self):
        self.manager, self.machine = Manager(), Machine("a", {})
        self.verdicts = []

    def take(self, step):
        """Take a step; messages stay, so that each may arrive again."""
        if not step.startswith("deliver"):
            getattr(self.machine, step)()
        elif self.machine.sent:
            claim = self.machine.sent[0 if step.endswith("first") else -1]
            verdict, start = self.manager.store(claim)
            self.verdicts.append(verdict)
            if not step.endswith("unanswered"):
                self.machine.answer(claim, verdict, start)

    def report(self, machine=None):
        """Report without a fault."""
        machine = machine or self.machine
        machine.send()
        verdict, start = self.manager.store(machine.sent[-1])
        machine.answer(machine.sent[-1], verdict, start)
        return verdict


class ProtocolTest(unittest.TestCase):
    steps, histories = 3, 60

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(report_tokens, "INTERVAL", 0.0))
        numbers = itertools.count()
        self.enterContext(
            mock.patch.object(
                report_tokens.uuid, "uuid4", lambda: mock.Mock(hex=f"{next(numbers)}")
            )
        )

    def assert_is_single(self, world, steps):
        self.assertLessEqual(
            {*world.verdicts}, {Verdict.ACCEPTED, Verdict.RESTARTED, Verdict.OLD}, steps
        )
        self.assertIn(copy.deepcopy(world).report(), {Verdict.ACCEPTED, Verdict.RESTARTED}, steps)

    def explore(self, world, depth, steps=()):
        self.assert_is_single(world, steps)
        if depth:
            for step in STEPS:
                following = copy.deepcopy(world)
                following.take(step)
                self.explore(following, depth - 1, (*steps, step))

    def test_single_machine_is_never_in_conflict(self):
        world = World()
        self.explore(world, self.steps)
        world.report()
        self.explore(world, self.steps)

    def test_single_machine_is_never_in_conflict_in_long_histories(self):
        for seed in range(self.histories):
            chance, world, steps = random.Random(seed), World(), []
            for _ in range(60):
                steps.append(chance.choice(STEPS))
                world.take(steps[-1])
                if world.machine.sent and chance.random() < 0.2:
                    # Any earlier message arrives, or arrives again.
                    verdict, _start = world.manager.store(chance.choice(world.machine.sent))
                    world.verdicts.append(verdict)
            self.assert_is_single(world, (seed, steps))

    def test_copy_without_journal_is_found_by_the_reports_of_the_machine_that_it_sees(self):
        world = World()
        world.report()
        other = Machine("b", {})
        other.send()
        for number in range(report_tokens.MAX_DELAYED + 1):
            self.assertFalse(other.tokens.take()["has_rival"])
            other.tokens.record_early(f"p:{number}")
            other.tokens.record_early(f"p:{number}")
        world.machine.restart()
        world.report()
        self.assertEqual([Verdict.OLD, Verdict.CONFLICT], [world.report(other) for _ in range(2)])

    def copy_machine(self, world, *, with_journal=True):
        disk = dict(world.machine.disk) if with_journal else {}
        return Machine("b", disk)

    def test_copy_is_always_found(self):
        for seed in range(2 * self.histories):
            chance, world = random.Random(seed), World()
            for _ in range(chance.randrange(1, 20)):
                world.take(chance.choice(STEPS))
            world.report()
            other = self.copy_machine(world, with_journal=chance.random() < 0.8)
            for _ in range(chance.randrange(4)):
                world.take(chance.choice(STEPS))
            both = [world.machine, other]
            chance.shuffle(both)
            verdicts = [world.report(machine) for _ in range(4) for machine in both]
            self.assertIn(Verdict.CONFLICT, verdicts, seed)

    def test_copy_of_passed_token_is_refused_at_once(self):
        world = World()
        world.report()
        other = self.copy_machine(world)
        for _ in range(2):
            world.report()
        for _ in range(3):
            self.assertIn(world.report(other), {Verdict.OLD, Verdict.CONFLICT})
            self.assertEqual(Verdict.ACCEPTED, world.report())

    def test_copy_of_running_process_is_found(self):
        for reports in (0, 1, 3):
            world = World()
            world.report()
            other = copy.deepcopy(world.machine)
            for _ in range(reports):
                world.report(other)
            verdicts = [
                world.report(machine) for _ in range(3) for machine in (world.machine, other)
            ]
            self.assertIn(Verdict.CONFLICT, verdicts, reports)

    def test_database_of_backup_accepts_processes_that_have_gone_on(self):
        world = World()
        world.report()
        backup = copy.deepcopy(world.manager.row)
        for _ in range(5):
            world.report()
        world.manager.row = backup
        self.assertEqual([Verdict.ACCEPTED] * 2, [world.report(), world.report()])

    def test_lost_journal_of_running_machine_is_noted(self):
        world = World()
        for _ in range(3):
            world.machine.restart()
            world.report()
        world.machine.disk.clear()
        world.machine.restart()
        verdicts = [world.report() for _ in range(3)]
        self.assertEqual([Verdict.OLD, Verdict.JOURNAL_LOST, Verdict.ACCEPTED], verdicts)
        self.assertEqual(1, world.manager.row["journal_losses"])

    def test_journal_of_backup_is_noted_on_running_machine_and_a_conflict_after_restart(self):
        for restart, expected in (("restart", Verdict.JOURNAL_LOST), ("reboot", Verdict.CONFLICT)):
            world = World()
            world.report()
            backup = dict(world.machine.disk)
            for _ in range(3):
                world.machine.restart()
                world.report()
            world.machine.disk.update(backup)
            getattr(world.machine, restart)()
            self.assertEqual([Verdict.OLD, expected], [world.report(), world.report()])

    def test_machine_without_journal_after_restart_is_the_same(self):
        world = World()
        for _ in range(2):
            world.machine.disk.clear()
            world.machine.reboot()
            verdicts = [world.report(), world.report()]
        self.assertEqual([Verdict.OLD, Verdict.RESTARTED], verdicts)


class RuleTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.row = {
            **EMPTY,
            "host": HOST,
            "boot_id": "b1",
            "machine_id": "m1",
            "report_token": "t1",
            "report_process": "p1",
            "report_start": 4,
            "report_number": 7,
        }

    def judge(self, **values):
        known = {"process": "p2", "start": 5, "number": 1, "previous": "t1", "next": "t2"}
        claim = {"boot_id": "b1", "machine_id": "m1", **known, **values}
        return machines.judge(self.row, Claim(**claim))

    def test_known_token_of_other_machine_is_a_conflict(self):
        self.assertEqual(Verdict.RESTARTED, self.judge(boot_id="b2"))
        self.assertEqual(Verdict.RESTARTED, self.judge(boot_id="b2", machine_id=None))
        self.assertEqual(Verdict.CONFLICT, self.judge(boot_id="b2", machine_id="m2"))

    def test_machine_without_token_and_id_is_a_conflict_after_restart(self):
        lost = {"boot_id": "b2", "previous": None, "machine_id": None}
        self.assertEqual(Verdict.CONFLICT, self.judge(**lost))
        self.assertEqual(Verdict.CONFLICT, self.judge(**{**lost, "machine_id": "m2"}))

    def test_first_token_is_believed(self):
        self.row["report_token"] = None
        for boot_id, expected in (("b1", Verdict.ACCEPTED), ("b2", Verdict.RESTARTED)):
            self.assertEqual(expected, self.judge(boot_id=boot_id, machine_id=None))

    def check_proof(self, origin, **values):
        machines.check_proof({**self.row, **values}, origin)

    def test_proof_of_the_machine_that_made_the_device(self):
        self.check_proof("b1:0")
        self.check_proof("b1:2", journal_losses=2)
        self.check_proof("b0:0")
        self.check_proof(None)
        with self.assertRaisesRegex(exception.Conflict, "lost its journal.*agent accept node-1"):
            self.check_proof("b1:0", journal_losses=1)

    def test_restart_is_proof_when_the_former_start_has_been_silent(self):
        recently = models.now() - datetime.timedelta(seconds=10)
        for origin in ("b0:0", None):
            with self.assertRaisesRegex(exception.Conflict, r"repeat the request in \d\d s"):
                self.check_proof(origin, former_boot_at=recently)
        self.check_proof("b1:0", former_boot_at=recently)
        self.check_proof("b0:0", former_boot_at=recently - datetime.timedelta(seconds=60))


class StoredTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        agent_store.create(HOST, KEY)
        self.report(Claim("b1", "m1", "p1", 1, 1, None, "t1"))

    def make_silent(self, seconds=60):
        """Set the last report to some seconds ago."""
        db_rows.change_agent(HOST, heartbeat_at=models.now() - datetime.timedelta(seconds=seconds))

    def report(self, claim):
        row = agent_store.check_key(HOST, KEY)
        agent_store.record_report(HOST, machines.accept(row, claim), read=row)

    def copy(self, **values):
        values = {"number": 1, "previous": "s0", "next": "s1", **values}
        return Claim("b2", "m1", "p2", 5, **values)

    def test_other_machine_is_stored_and_refused_and_the_first_one_goes_on(self):
        with self.assertLogs("attachd.db.agents.machines", "ERROR") as logs:
            for number in (1, 2):
                with self.assertRaisesRegex(exception.AgentConflict, "boot b1, .* boot b2 since"):
                    self.report(self.copy(number=number))
        self.assertEqual(1, len(logs.output))
        self.report(Claim("b1", "m1", "p1", 1, 2, "t1", "t2"))
        row = agent_store.get(HOST)
        self.assertEqual("conflict", agent_store.state(row))
        self.assertEqual(("t2", "b2"), (row["report_token"], row["conflict"]["boot_id"]))
        with self.assertRaises(exception.AgentConflict):
            machines.check_caller(agent_store.check_key(HOST, KEY), "p1")

    def test_restarted_machine_is_accepted_when_its_former_start_is_silent(self):
        claim = Claim("b2", "m1", "p2", 2, 1, "t1", "t2")
        with self.assertRaisesRegex(exception.EarlyRestart, "0.* s ago, by boot b1") as raised:
            self.report(claim)
        self.assertEqual("p1:1", raised.exception.details["report"])
        self.make_silent(16)
        former = agent_store.get(HOST)["heartbeat_at"]
        self.report(claim)
        row = agent_store.get(HOST)
        self.assertEqual(("b2", former), (row["boot_id"], row["former_boot_at"]))

    def test_former_start_whose_old_reports_get_no_answer_is_not_silent(self):
        self.make_silent(100)
        self.report(Claim("b2", "m1", "p2", 2, 1, "t1", "t2"))
        machines.check_proof(agent_store.check_key(HOST, KEY), "b1:0")
        for number in (2, 3):
            with self.assertRaises(exception.OldReport):
                self.report(Claim("b1", "m1", "p1", 1, number, None, "t1"))
            with self.assertRaisesRegex(exception.Conflict, "repeat the request"):
                machines.check_proof(agent_store.check_key(HOST, KEY), "b1:0")
        machines.check_proof(agent_store.check_key(HOST, KEY), "b2:0")
        self.make_silent(100)
        self.report(Claim("b3", "m1", "p3", 3, 1, "t2", "t3"))
        with self.assertRaisesRegex(exception.Conflict, "repeat the request"):
            machines.check_proof(agent_store.check_key(HOST, KEY), "b1:0")

    def test_old_report_of_restarted_agent_shows_that_its_machine_runs(self):
        self.make_silent(100)
        with self.assertRaises(exception.OldReport):
            self.report(Claim("b1", "m1", "p2", 1, 1, None, "s1"))
        self.report(Claim("b2", "m1", "p3", 2, 1, "t1", "t2"))
        with self.assertRaisesRegex(exception.Conflict, "repeat the request"):
            machines.check_proof(agent_store.check_key(HOST, KEY), "b1:0")

    def test_report_judged_by_an_outdated_row_is_not_stored(self):
        self.make_silent()
        row = agent_store.check_key(HOST, KEY)
        self.report(Claim("b1", "m1", "p1", 1, 2, "t1", "t2"))
        claim = Claim("b9", "m1", "p9", 2, 1, "t1", "t9")
        with self.assertRaises(machines.Changed):
            agent_store.record_report(HOST, machines.accept(row, claim), read=row)
        with self.assertRaises(machines.Changed):
            machines.accept(row, self.copy())
        self.assertEqual("b1", agent_store.get(HOST)["boot_id"])

    def test_refused_boot_gets_an_answer_and_no_conflict(self):
        db_rows.change_agent(HOST, refused_boots=["b2"])
        with self.assertRaisesRegex(exception.MachineRefused, "boot b2"):
            self.report(self.copy())
        self.assertIsNone(agent_store.get(HOST)["conflict"])

    def test_machine_of_agent_that_was_registered_again_proves_nothing_of_former_devices(self):
        device = {"agent": HOST, "device_origin": "b1:0"}
        attachment = db_rows.add_attachment(db_rows.add_volume()["id"], "attached", **device)
        for boot_id in ("b1", "b2", "b3"):
            host_fences.fence(HOST, "lease", None, host_fences.Lift.AUTO)
            agent_store.force_delete(HOST)
            self.assertEqual("manual", host_fences.find(HOST)["lift"])
            host_fences.lift(HOST)
            agent_store.create(HOST, KEY)
            self.report(Claim(boot_id, "m2", "p2", 1, 1, None, "t1"))
            origin = db_rows.get_attachment(attachment["id"])["device_origin"]
            row = agent_store.check_key(HOST, KEY)
            if boot_id == "b1":
                machines.check_proof(row, origin)
                continue
            with self.assertRaisesRegex(exception.Conflict, f"--boot {boot_id} --devices-gone"):
                machines.check_proof(row, origin)
        accept_machine.accept(HOST, "b3", devices_gone=True)
        origin = db_rows.get_attachment(attachment["id"])["device_origin"]
        machines.check_proof(agent_store.check_key(HOST, KEY), origin)

    def test_call_of_process_without_accepted_report_is_refused(self):
        row = agent_store.check_key(HOST, KEY)
        machines.check_caller(row, "p1")
        for process in (None, "p2"):
            with self.assertRaisesRegex(exception.Conflict, "no accepted report"):
                machines.check_caller(row, process)

    def test_old_report_names_the_accepted_one(self):
        with self.assertRaises(exception.OldReport) as raised:
            self.report(Claim("b2", "m1", "p2", 1, 1, "s0", "s1"))
        self.assertEqual(1, raised.exception.details["start"])


@full_only("properties")
class ManyStepsTest(ProtocolTest):
    """The same, for longer."""

    steps, histories = 4, 150
