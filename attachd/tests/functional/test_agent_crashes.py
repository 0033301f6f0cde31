# SPDX-License-Identifier: Apache-2.0
"""Tests of an agent that is killed between two steps, and of the next one, which finishes."""

import functools
import itertools
import json
import os
import signal

from attachd.tests.fixtures.agent_fork_server import CHILD
from attachd.tests.fixtures.crash_points import Plan, Point, crash_file, log_of
from attachd.tests.functional.test_agents import BYTES, LATER, AgentCase
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until


@full_only("crash")
class AgentCrashTest(AgentCase):
    """Kills at each point of an attach, and of a detach."""

    def passed(self, work):
        """Return the points that an agent passes during some work.

        It may reconcile once more afterwards, which is no part of the work.
        """
        log = log_of(self.deployment.plans, self.deployment.follow(Plan))
        work()
        # The API responds before the agent has passed its last points.
        lines = wait_until(lambda: self.lines_of_a_reconcile(log))
        first = itertools.takewhile(lambda line: line[0] != "end reconcile", lines)
        return [Point(*point) for what, _role, _pid, point in first if what == "pass"]

    def lines_of_a_reconcile(self, log):
        """Return what was recorded, once there is a whole reconcile."""
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return lines if "end reconcile" in [line[0] for line in lines] else []

    def kill_at(self, point, work):
        """Kill the agent, or its child, at a point of the work, and return the response.

        Another agent runs then, or the same one.
        """
        agent = self.host.start()
        serial = self.deployment.follow(lambda serial: Plan(serial, point))
        answer = work()
        wait_until(crash_file(self.deployment.plans, serial).exists)
        if not point.name.startswith(CHILD):
            agent.wait()
        self.deployment.follow(Plan)
        return answer

    def start_again(self, point):
        """Start an agent if the last one was killed, and return the one that runs."""
        return self.host.agents[-1] if point.name.startswith(CHILD) else self.host.start()

    def kept(self, points):
        """Leave out equal places: after a step is before the next one."""
        return [point for point in points if "> before" in point.name] + points[-1:]

    def test_attach_with_agent_killed_at_any_step_completes(self):
        self.host.report_every(3600)
        self.host.start()
        attachments = []
        points = self.kept(self.passed(lambda: attachments.append(self.attach())))
        self.detach(attachments[0])
        names = [item.name.rpartition(" ")[2] for item in points]
        self.assertEqual(["desired_state", "desired_state"], names[:2])
        self.assertTrue({"connect", "write", "connected"} <= set(names), names)
        self.host.agents[-1].kill()
        self.host.report_every(1)
        for point in points:
            with self.subTest(f"{point}"):
                attachment = self.kill_at(point, self.begin)
                agent = self.start_again(point)
                self.wait_for(attachment, "attached")
                wait_until(lambda: self.host.entries()[0].step == "attached")
                self.write(attachment)
                self.detach(attachment)
                self.assertEqual(BYTES, self.stored())
                agent.kill()

    def test_detach_with_agent_killed_at_any_step_completes_host_first(self):
        self.host.report_every(3600)
        self.host.start()
        attachment = self.attach()
        points = self.kept(self.passed(lambda: self.detach(attachment)))
        names = [item.name.rpartition(" ")[2] for item in points]
        self.assertTrue({"disconnect", "write", "disconnected", "remove"} <= set(names), names)
        self.host.agents[-1].kill()
        self.host.report_every(1)
        for point, name in zip(points, names, strict=True):
            with self.subTest(f"{point}"):
                self.host.start()
                attachment = self.attach()
                # Else the next agent continues the attach, and the detach is a part of that.
                wait_until(lambda: self.host.entries()[0].step == "attached")
                self.host.agents[-1].kill()
                later = functools.partial(self.deployment.detach, attachment, **LATER)
                answer = self.kill_at(point, later)
                self.assertEqual(202, answer.status_code, answer.text)
                if name == "disconnected":
                    self.assertEqual([], self.host.loops())
                    self.assertTrue(self.exported())
                agent = self.start_again(point)
                self.wait_for(attachment, None)
                self.assert_nothing_is_left()
                agent.kill()


@full_only("crash")
class DaemonCrashTest(AgentCase):
    """Kills of QEMU's storage daemon below an attached volume."""

    def setUp(self):
        super().setUp()
        self.host.report_every(1)
        self.host.start()

    def wait_for_device(self, attachment):
        wait_until(
            lambda: self.host.daemons() and self.host.entries()[0].step == "attached",
            lambda: self.deployment.attachment(attachment),
        )

    def test_daemon_killed_below_unused_device_is_brought_back(self):
        attachment = self.attach()
        self.write(attachment)
        (former,) = self.host.daemons()
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: self.host.daemons() not in ([], [former]))
        self.wait_for_device(attachment)
        self.assertEqual(BYTES, self.read(attachment))
        self.detach(attachment)

    def test_daemon_killed_below_device_in_use_shows_in_attachment(self):
        attachment = self.attach()
        self.write(attachment)
        (former,) = self.host.daemons()
        (loop,) = self.host.loops()
        with self.host.device(attachment).open("rb"):
            os.kill(former, signal.SIGKILL)
            shown = wait_until(lambda: self.deployment.attachment(attachment)["error"])
            self.assertRegex(shown, "has lost its volume.*is in use by process")
            self.assertEqual(([loop], []), (self.host.loops(), self.host.daemons()))
            self.assertEqual("attached", self.status(attachment))
        wait_until(lambda: self.deployment.attachment(attachment)["error"] is None)
        self.wait_for_device(attachment)
        self.assertEqual(BYTES, self.read(attachment))
        self.detach(attachment)
