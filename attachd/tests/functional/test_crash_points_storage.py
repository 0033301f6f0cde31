# SPDX-License-Identifier: Apache-2.0
"""Tests of a storage daemon that is killed during a call, and comes back without its exports."""

import unittest
import uuid

from attachd.states import AttachmentState
from attachd.tests.crash import attachment_calls, runner, volume_calls
from attachd.tests.crash.case import CALLS, CrashCase, EachCallCase
from attachd.tests.crash.deployment import CrashDeployment
from attachd.tests.fixtures.crash_points import STORAGE, Point
from attachd.tests.selection import full_only


class ConnectElsewhere(attachment_calls.Connect):
    """PUT /attachments/ID that fails; then another server gets the volume, on another host."""

    def repeat(self):
        """Connect another host instead."""
        other = {**self.connector, "host": "other", "initiator": f"{self.connector['initiator']}2"}
        self._connect(self._reserve(str(uuid.uuid4())), other)

    def wrong(self):
        """The first host surely has no access, and the other one has."""
        wanted = [AttachmentState.CONNECT_FAILED, AttachmentState.CONNECTED]
        yield from self._differs("attachments", wanted, [row["state"] for row in self.rows()])
        yield from self._status_differs("attaching")


@full_only("crash")
class OneStepTest(unittest.TestCase):
    """One step of each operation that the backend does."""

    def test_calls_with_storage_daemon_killed_are_resolved_when_it_is_back(self):
        deployment = CrashDeployment(self, "mariadb")
        for kind, step in (
            (ConnectElsewhere, "attach_exclusive > driver grant > before"),
            (attachment_calls.Connect, "attach_exclusive > driver grant > after"),
            (attachment_calls.Detach, "detach > driver revoke > before"),
            (volume_calls.Extend, "extend_volume > driver extend > before"),
        ):
            with self.subTest(step):
                outcome = runner.crash_at(deployment, kind, Point("manager", step, 1), "storage")
                self.assertTrue(outcome.died)
                self.assertEqual([], outcome.left, f"{outcome}")


class _StorageCase(CrashCase):
    """The points of managers.

    A failed connect of a caller that does not wait stays failed: a repeated POST gets the stored
    answer.
    """

    @classmethod
    def chosen(cls, deaths):
        points = {
            (kind, point)
            for kind, point, _ in deaths
            if point.role == "manager" and kind is not attachment_calls.NOT_WAITING[0]
        }
        deaths = [
            (kind, point, victim)
            for kind, point in sorted(points, key=str)
            for victim in STORAGE[: 2 if " > driver " in point.name else 1]
        ]
        return super().chosen(deaths)


@full_only("crash")
class EachStepTest(_StorageCase, EachCallCase, unittest.TestCase):
    """Each step, in one of the calls that take it."""


@full_only("crash")
class PostgreSQLTest(_StorageCase, unittest.TestCase):
    """Some points, with a second manager."""

    database = "postgresql"
    managers = 2
    share = 20

    def test_calls_with_storage_daemon_killed_at_sampled_points_are_resolved(self):
        self.check(*CALLS)
