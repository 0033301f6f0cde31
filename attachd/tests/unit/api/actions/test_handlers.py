# SPDX-License-Identifier: Apache-2.0
"""Growing a volume, and setting its status by hand."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.actions import handlers
from attachd.api.volumes import work
from attachd.tests import asking, rows


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report()
        self.rpcapi = self.enterContext(mock.patch.object(work, "rpcapi"))


class ExtendTest(Case):
    def extend(self, volume, size, *roles, version=mv.LATEST):
        handlers.extend(asking.context(*roles), volume["id"], {"new_size": size}, version)
        return rows.volume(volume["id"])

    def attached(self):
        volume = rows.add_volume()
        rows.add_attachment(volume["id"], "attached")
        return volume

    def test_a_free_volume_is_marked_and_sent(self):
        row = self.extend(rows.add_volume(), "2")
        self.assertEqual(("extending", 2), (row["status"], row["new_size_gib"]))
        self.rpcapi.extend_volume.assert_called_once()

    def test_a_volume_in_use_grows_from_3_42_on(self):
        volume = self.attached()
        with self.assertRaisesRegex(exception.InvalidVolume, "must be available to extend"):
            self.extend(volume, 2, version=mv.Version(3, 41))
        self.assertEqual("extending", self.extend(volume, 2, version=mv.Version(3, 42))["status"])

    def test_only_a_larger_size_is_taken(self):
        for size in (2, 1):
            with self.assertRaisesRegex(exception.InvalidInput, "greater than current"):
                self.extend(rows.add_volume(size_gib=2), size)

    def test_other_states_are_named(self):
        reserved = rows.add_volume()
        rows.add_attachment(reserved["id"])
        for volume in (reserved, *map(rows.add_volume, ("error", "creating", "extending"))):
            status = rows.volume(volume["id"])["status"]
            with self.subTest(status), self.assertRaisesRegex(exception.InvalidVolume, status):
                self.extend(volume, 2)
        self.rpcapi.extend_volume.assert_not_called()

    def test_a_backend_has_to_have_room(self):
        volume = rows.add_volume()
        with self.assertRaisesRegex(exception.NoBackendFits, "GiB are asked for"):
            self.extend(volume, 200)
        self.assertEqual("available", rows.volume(volume["id"])["status"])

    def test_a_reader_may_not(self):
        with self.assertRaisesRegex(exception.Forbidden, "volume:extend"):
            self.extend(rows.add_volume(), 2, "reader")


class ResetTest(Case):
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
