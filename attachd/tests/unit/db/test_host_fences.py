# SPDX-License-Identifier: Apache-2.0
"""Tests of the table of fenced hosts."""

import unittest

from attachd import exception
from attachd.db import host_fences
from attachd.tests.fixtures import databases, db_rows


class HostFencesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)

    def test_fence_is_stored_once_until_it_is_lifted(self):
        first, is_new = host_fences.fence("h", "dead", "u")
        self.assertTrue(is_new)
        self.assertEqual(
            (1, "dead", "u"), (first["generation"], first["reason"], first["user_id"])
        )
        self.assertEqual((first, False), host_fences.fence("h", "again", "v"))
        self.assertEqual([first], host_fences.list_fenced())
        self.assertTrue(host_fences.lift("h"))
        self.assertFalse(host_fences.lift("h"))
        self.assertEqual([], host_fences.list_fenced())
        second, is_new = host_fences.fence("h", "again", "v")
        self.assertEqual((2, "again", True), (second["generation"], second["reason"], is_new))

    def test_only_the_named_fence_is_lifted(self):
        host_fences.fence("h", "dead", "u")
        self.assertFalse(host_fences.lift("h", generation=2))
        self.assertTrue(host_fences.lift("h", generation=1))

    def test_fenced_host_is_refused_with_reason(self):
        host_fences.check("h")
        host_fences.check(None)
        host_fences.fence("h", "no heartbeat", "u")
        with self.assertRaisesRegex(exception.HostFenced, "Host h .* because: no heartbeat"):
            host_fences.check("h")
        host_fences.check("H")
        host_fences.lift("h")
        host_fences.check("h")

    def test_attachments_of_host_and_of_its_agent_are_listed(self):
        volume = db_rows.add_volume()["id"]

        def add(state, **columns):
            return db_rows.add_attachment(volume, state, **columns)["id"]

        connector = {"host": "h"}
        expected = [
            add("attached", host="h", connector=connector),
            add("disconnect_failed", host="h", connector=connector),
            add("connected", host="x", agent="h", connector=connector),
        ]
        add("reserved", agent="h")
        add("connect_failed", host="h", connector=connector)
        add("attached", host="other", connector=connector)
        self.assertEqual(expected, [row["id"] for row in host_fences.list_attachments(["h"])])
