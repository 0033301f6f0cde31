# SPDX-License-Identifier: Apache-2.0
"""Access is revoked in the mode in which it was granted, even if another mode is allowed by then.

This concerns connect, retry, recovery and detach.
"""

import contextlib
import itertools
from typing import Any

from attachd import exception
from attachd.db.attachments import backend_attachments
from attachd.db.attachments.connect_rules import READONLY
from attachd.db.attachments.legacy import Creator
from attachd.db.types import type_store
from attachd.manager import attach, detach, legacy_connections
from attachd.manager.periodic_tasks import ensure_exports, recovery
from attachd.periodics import Backoff
from attachd.tests.fixtures import backends, db_rows
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR


class GrantedModesTest(backends.BackendCase):
    """A volume with one writer; the allowed mode changes while its connect is in doubt."""

    def setUp(self):
        super().setUp()
        specs = {"multiattach": "<is> True", "mode": "RO"}
        self.type_id = type_store.create({"name": "one-writer", "extra_specs": specs})["id"]

    def test_revoke_after_doubtful_grant_uses_granted_mode(self):
        for begin, doubt, change_mode, end in itertools.product(
            (self.attach, self.open),
            (self.lost, self.killed, self.reverted, self.granted),
            (self.change_to_readonly, self.attach_other_writer),
            (self.detach, self.recover, self.repeat, self.restart),
        ):
            names = [step.__name__ for step in (begin, doubt, change_mode, end)]
            with self.subTest(" ".join(names)):
                volume = db_rows.add_volume(volume_type_id=self.type_id, multiattach=True)
                self.volume_id = volume["id"]
                self.driver.driver_calls.clear()
                self.begin = begin
                doubt(begin)
                (attachment_id,) = self.attachment_ids()
                change_mode()
                end(attachment_id)
                if attachment_id in self.attachment_ids():
                    self.detach(attachment_id)
                handed = [
                    call
                    for call in self.driver.driver_calls
                    if call.export is not None and call.export.attachment_id == attachment_id
                ]
                self.assertEqual("revoke", handed[-1].method)
                # A connect that was surely reverted is over: the next one may have another mode.
                over = handed[:2] if doubt == self.reverted else []
                for tried in (over, handed[len(over) :]):
                    modes = {call.export.mode for call in tried}
                    self.assertLessEqual(len(modes), 1, handed)
                self.assertNotIn(attachment_id, self.driver.granted())

    def attachment_ids(self):
        return [row["id"] for row in db_rows.list_attachments(self.volume_id)]

    def attach(self) -> Any:
        existing = db_rows.list_attachments(self.volume_id)
        attachment = existing[0] if existing else db_rows.add_attachment(self.volume_id)
        return attach.attach(self.backend, attachment["id"], self.volume_id, CONNECTOR)

    def open(self) -> Any:
        creator = Creator(db_rows.PROJECT, "u")
        return legacy_connections.initialize(self.backend, self.volume_id, creator, CONNECTOR)

    def lost(self, begin):
        with self.driver.failing_late("grant"), self.driver.failing("revoke"):
            self.assertRaises(exception.AttachdError, begin)
        self.assert_state("connect_unknown", "rw")

    def killed(self, begin):
        with self.driver.raising(backends.ProcessKilled(), "grant"):
            self.assertRaises(backends.ProcessKilled, begin)
        self.assert_state("connecting", "rw")

    def reverted(self, begin):
        with self.driver.failing_late("grant"):
            self.assertRaises(exception.AttachdError, begin)
        self.assert_state("connect_failed", None)

    def granted(self, begin):
        self.assertEqual("rw", begin()["mode"])
        self.assert_state("connected", "rw")

    def assert_state(self, state, mode):
        (attachment,) = db_rows.list_attachments(self.volume_id)
        self.assertEqual((state, mode), (attachment["state"], attachment["mode"]))

    def change_to_readonly(self):
        db_rows.change_volume(self.volume_id, admin_metadata={READONLY: "True"})

    def attach_other_writer(self):
        db_rows.add_attachment(
            self.volume_id, state="attached", mode="rw", connector=OTHER_CONNECTOR
        )

    def detach(self, attachment_id):
        detach.detach(self.backend, attachment_id, self.volume_id)

    def recover(self, _attachment_id):
        recovery.recover_all(self.backend, Backoff())

    def repeat(self, _attachment_id):
        with contextlib.suppress(exception.AttachdError):
            self.begin()

    def restart(self, attachment_id):
        self.driver.restart()
        live = backend_attachments.list_live([self.volume_id])
        ensure_exports.ensure_exports(
            self.backend, [row for row in live if row["id"] == attachment_id], Backoff()
        )
