# SPDX-License-Identifier: Apache-2.0
"""An agent killed at any step of a reconcile; the next one finishes it."""

import contextlib
import functools
from unittest import mock

from attachd import exception
from attachd.agent.journal import Journal, Step
from attachd.db.agents import agent_transitions
from attachd.rpc import agent_manager_api
from attachd.tests.fixtures import db_rows
from attachd.tests.fixtures.backends import ProcessKilled
from attachd.tests.fixtures.fake_host import CREDENTIALS
from attachd.tests.unit.agent.test_reconciler import ReconcilerCase


class Death:
    """Kill the process before its n-th step, or after the last one."""

    def __init__(self, step):
        self.left = step
        self.passed = []

    def around(self, name, real):
        @functools.wraps(real)
        def called(*args, **kwargs):
            self.left -= 1
            self.passed.append(name)
            if self.left == 0:
                raise ProcessKilled
            return real(*args, **kwargs)

        return called


def dying(connector, step, act):
    """Run ``act`` and kill it before a step; returns the steps that it has passed."""
    death = Death(step)
    places = [(Journal, "write"), (Journal, "remove")]
    places += [(connector, verb) for verb in ("connect", "disconnect")]
    places += [
        (agent_manager_api, name) for name in ("desired_state", "connected", "disconnected")
    ]
    with contextlib.ExitStack() as stack:
        for place, name in places:
            around = death.around(name, getattr(place, name))
            stack.enter_context(mock.patch.object(place, name, around))
        stack.enter_context(contextlib.suppress(ProcessKilled))
        act()
    return death


class DeathTest(ReconcilerCase):
    """The agent dies before each of its steps, and the next one finishes."""

    def enumerated(self, prepare, check, steps):
        for step in range(1, 20):
            attachment_id = prepare()
            death = dying(
                self.connector,
                step,
                lambda row_id=attachment_id: self.make_reconciler().reconcile(row_id),
            )
            if death.left > 0:
                self.assertEqual(steps, death.passed)
                return
            with self.subTest(f"before {death.passed[-1]}, step {step}"):
                report = [
                    item
                    for item in (agent_manager_api.desired_state(CREDENTIALS, attachment_id),)
                    if item
                ]
                for item in self.make_reconciler().list_pending(report):
                    self.make_reconciler().reconcile(item)
                check(attachment_id)
        self.fail("it has no end")

    def test_attach_killed_at_any_step_is_finished(self):
        def check(attachment_id):
            self.assertEqual(("attached", None), self.seen(attachment_id)[::2])
            (entry,) = self.entries()
            self.assertEqual((attachment_id, Step.ATTACHED), (entry.attachment_id, entry.step))
            self.withdraw(attachment_id)
            self.reconciler.reconcile(attachment_id)
            self.assertEqual([], self.entries())

        steps = [
            "desired_state",
            "desired_state",
            "write",
            "connect",
            "write",
            "write",
            "connected",
            "write",
            "write",
        ]
        self.enumerated(self.add, check, steps)

    def test_detach_killed_at_any_step_is_finished(self):
        def prepare():
            attachment_id = self.attached()
            self.withdraw(attachment_id)
            return attachment_id

        def check(attachment_id):
            self.assertEqual("disconnecting", self.seen(attachment_id)[0])
            self.assertEqual(([], []), (self.entries(), self.connector.devices()))

        steps = ["desired_state", "write", "disconnect", "write", "disconnected", "remove"]
        self.enumerated(prepare, check, steps)

    def test_remake_killed_at_any_step_is_finished(self):
        def prepare():
            for attachment in db_rows.list_attachments():
                db_rows.remove_attachment(attachment["id"])
                self.reconciler.reconcile(attachment["id"])
            attachment_id = self.attached()
            self.connector.reboot()
            return attachment_id

        def check(attachment_id):
            self.assertEqual(
                ("attached", str(self.connector.path("t1")), None), self.seen(attachment_id)
            )
            self.assertEqual((["t1"], 1), (self.connector.devices(), len(self.entries())))

        steps = ["desired_state", "write", "connect", "write", "write", "connected", "write"]
        self.enumerated(prepare, check, steps)

    def test_orphan_removal_killed_at_any_step_is_finished(self):
        def prepare():
            attachment_id = self.attached()
            db_rows.remove_attachment(attachment_id)
            return attachment_id

        def check(_attachment):
            self.assertEqual(([], []), (self.entries(), self.connector.devices()))

        self.enumerated(
            prepare, check, ["desired_state", "write", "disconnect", "write", "remove"]
        )

    def test_late_call_of_killed_agent_changes_nothing(self):
        attachment_id = self.add()
        self.withdraw(attachment_id)
        with self.assertRaises(exception.InvalidTransition):
            agent_transitions.complete(attachment_id, CREDENTIALS.host, 1, "/dev/sdb")
        self.reconciler.reconcile(attachment_id)
        self.assertEqual("disconnecting", self.seen(attachment_id)[0])
