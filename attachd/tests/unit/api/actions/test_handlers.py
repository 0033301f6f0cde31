# SPDX-License-Identifier: Apache-2.0
"""Setting a volume's status by hand."""

import unittest

from attachd import exception
from attachd.api.actions import handlers
from attachd.tests import asking, rows


class ResetTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def reset(self, volume, *roles, **claims):
        ctx = asking.context(*(roles or asking.ADMIN))
        handlers.reset_status(ctx, volume["id"], claims)
        return rows.volume(volume["id"])["status"]

    def test_a_status_is_set(self):
        volume = rows.add_volume("creating")
        for status in ("error", "available", "maintenance", "creating"):
            self.assertEqual(status, self.reset(volume, status=status.upper()))

    def test_what_only_a_manager_knows_cannot_be_claimed(self):
        volume = rows.add_volume()
        for status in ("deleting", "error_deleting", "detaching", "extending", "nonsense"):
            with self.assertRaisesRegex(exception.InvalidInput, "os-reset_status.status"):
                self.reset(volume, status=status)
        self.assertEqual("available", rows.volume(volume["id"])["status"])

    def test_attachments_prove_a_claim_wrong(self):
        volume = rows.add_volume()
        with self.assertRaisesRegex(exception.BadRequest, "in-use"):
            self.reset(volume, status="in-use")
        attachment = rows.add_attachment(volume["id"], "attached")
        for claims in ({"status": "available"}, {"attach_status": "detached"}):
            with self.assertRaisesRegex(exception.BadRequest, attachment["id"]):
                self.reset(volume, **claims)
        self.assertEqual("in-use", self.reset(volume, attach_status="attached"))

    def test_no_migration_is_all_there_is(self):
        self.assertEqual("available", self.reset(rows.add_volume(), migration_status="none"))
        with self.assertRaises(exception.InvalidInput):
            self.reset(rows.add_volume(), migration_status="migrating")

    def test_something_has_to_be_claimed(self):
        for claims in ({"status": None}, {"status": ""}, {"attach_status": None, "status": None}):
            with self.assertRaisesRegex(exception.BadRequest, "Must specify"):
                self.reset(rows.add_volume(), **claims)

    def test_only_administrators_may(self):
        with self.assertRaisesRegex(exception.Forbidden, "reset_status"):
            self.reset(rows.add_volume(), *asking.MEMBER, status="error")
