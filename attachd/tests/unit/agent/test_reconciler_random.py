# SPDX-License-Identifier: Apache-2.0
"""Random orders of events: the agent reports a device only if it is present, or gone.

Attachments are made, withdrawn and deleted by force; the host fails and reboots; its agent dies
at any step.  At the end, without further faults, the host has its desired state and nothing else.
"""

import contextlib
import random
from unittest import mock

from attachd import exception
from attachd.db.agents import agent_transitions
from attachd.rpc import agent_manager_api
from attachd.tests.fixtures import db_rows
from attachd.tests.fixtures.fake_host import CREDENTIALS
from attachd.tests.unit.agent.test_reconciler import ReconcilerCase
from attachd.tests.unit.agent.test_reconciler_killed import dying

SEEDS = 8
EVENTS = 25


class RandomTest(ReconcilerCase):
    """One host, a few volumes."""

    def setUp(self):
        super().setUp()
        self.moves = []
        for name, existing in (("complete", True), ("release", False)):
            watched = self.watched(name, getattr(agent_transitions, name), present=existing)
            self.enterContext(mock.patch.object(agent_transitions, name, watched))

    def watched(self, name, real, *, present):
        """Check the host at each report of a transition."""

        def result(attachment_id, *args):
            row = db_rows.get_attachment(attachment_id)
            target = row["connection_info"]["data"]["target"]
            self.assertEqual(present, target in self.connector.devices(), f"{name} of {target}")
            self.moves.append(name)
            return real(attachment_id, *args)

        return result

    def run_through(self, draw):
        volumes = [db_rows.add_volume()["id"] for _ in range(2)]
        events = [
            lambda: self.come(draw, volumes),
            lambda: self.go(draw),
            lambda: self.vanish(draw),
            self.connector.reboot,
            lambda: self.connector.failing.symmetric_difference_update({draw.choice(self.verbs)}),
            lambda: self.use(draw),
        ]
        for _ in range(EVENTS):
            draw.choice(events)()
            dying(self.connector, draw.randint(1, 12), self.report)
        self.connector.failing.clear()
        self.used.close()
        for _ in range(6):
            self.report()

    verbs = ("connect", "disconnect", "disconnect by force")

    def come(self, draw, volumes):
        """Attach a volume that is free, as the service would."""
        free = [volume for volume in volumes if not db_rows.list_attachments(volume)]
        if free:
            target = {"target": f"t{draw.randrange(10**6)}"}
            info = {"driver_volume_type": "memory", "data": target}
            values = {"agent": CREDENTIALS.host, "generation": 1, "connection_info": info}
            db_rows.add_attachment(draw.choice(free), "connected", **values)

    def go(self, draw):
        """Withdraw one, or have the backend revoke one that the host has released."""
        for row in draw.sample(
            db_rows.list_attachments(), min(1, len(db_rows.list_attachments()))
        ):
            if row["state"] == "disconnecting":
                db_rows.remove_attachment(row["id"])
            else:
                with contextlib.suppress(exception.InvalidTransition):
                    self.volume_id = row["volume_id"]
                    self.withdraw(row["id"])

    def vanish(self, draw):
        """Delete one by force."""
        for row in draw.sample(
            db_rows.list_attachments(), min(1, len(db_rows.list_attachments()))
        ):
            db_rows.remove_attachment(row["id"])

    def use(self, draw):
        """Use a device instead of the one used before."""
        self.used.close()
        self.used = contextlib.ExitStack()
        for target in draw.sample(self.connector.devices(), min(1, len(self.connector.devices()))):
            self.used.enter_context(self.connector.path(target).open("rb"))

    def report(self):
        """Do what a new process does after its first report."""
        reconciler = self.make_reconciler()
        ids = [attachment["id"] for attachment in db_rows.list_attachments()]
        due = [
            item
            for item in (agent_manager_api.desired_state(CREDENTIALS, id_) for id_ in ids)
            if item
        ]
        for item in reconciler.list_pending(due):
            with contextlib.suppress(exception.HostError):
                reconciler.reconcile(item)

    def test_random_faults_end_in_desired_state(self):
        for seed in range(SEEDS):
            with self.subTest(seed=seed), contextlib.ExitStack() as self.used:
                self.run_through(random.Random(seed))
                attached = [
                    row for row in db_rows.list_attachments() if row["state"] != "disconnecting"
                ]
                self.assertEqual({"attached"}, {"attached", *(row["state"] for row in attached)})
                targets = [row["connection_info"]["data"]["target"] for row in attached]
                self.assertEqual(sorted(targets), self.connector.devices())
                known = {entry.attachment_id for entry in self.entries()}
                self.assertEqual({row["id"] for row in attached}, known)
                for row in db_rows.list_attachments():
                    db_rows.remove_attachment(row["id"])
                self.report()
        self.assertGreater(self.moves.count("complete"), SEEDS)
        self.assertGreater(self.moves.count("release"), SEEDS // 2)
