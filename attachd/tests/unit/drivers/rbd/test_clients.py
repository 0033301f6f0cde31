# SPDX-License-Identifier: Apache-2.0
"""The record of clients, on a fake pool."""

import contextlib
import unittest
from unittest import mock

from attachd.drivers.rbd import clients
from attachd.drivers.rbd.clients import Client, ClientRecord

A, B = "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a1001", "5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a1002"


class SelectTest(unittest.TestCase):
    """Which clients are kept."""

    def select(self, seen, present=(), owners=(A, B)):
        return clients._select(seen, set(present), owners)

    def test_newest_and_present_ones_of_each_attachment_are_kept(self):
        many = {Client(A, f"127.0.0.1:0/{number}"): number for number in range(40)}
        other = {Client(B, "127.0.0.1:0/7"): 0}
        newest = {Client(A, f"127.0.0.1:0/{number}") for number in range(24, 40)}
        self.assertEqual(newest | other.keys(), self.select(many | other))
        old = Client(A, "127.0.0.1:0/0")
        self.assertEqual(newest | {old} | other.keys(), self.select(many | other, [old]))

    def test_those_of_deleted_users_are_dropped(self):
        client = Client(A, "127.0.0.1:0/1")
        self.assertEqual(set(), self.select({client: 1}, [client], [B]))


class UpdateTest(unittest.TestCase):
    """What is written."""

    def setUp(self):
        super().setUp()
        cluster, self.pool = mock.Mock(), mock.MagicMock()
        cluster.pool.return_value = contextlib.nullcontext(self.pool)
        cluster.errors.return_value = contextlib.nullcontext()
        self.enterContext(mock.patch.object(clients.bindings, "load"))
        self.record = ClientRecord(cluster, "volumes", "attachd-clients")

    def test_nothing_is_written_if_nothing_changes(self):
        client = Client(A, "127.0.0.1:0/1")
        for present in ({client}, set()):
            self.record.update({client: 5}, present, [A])
        self.record.update({}, set(), [A])
        self.assertEqual([], self.pool.mock_calls)

    def test_only_changes_are_written(self):
        known, new, gone = Client(A, "a"), Client(A, "b"), Client(B, "c")
        with mock.patch.object(clients.time, "time", return_value=9.5):
            self.record.update({known: 5, gone: 5}, {known, new}, [A])
        self.pool.set_omap.assert_called_once_with(mock.ANY, (f"{A} b",), (b"9",))
        self.pool.remove_omap_keys.assert_called_once_with(mock.ANY, (f"{B} c",))
        self.pool.remove_object.assert_not_called()

    def test_record_of_no_client_is_removed_at_once(self):
        self.record.update({Client(B, "c"): 5}, set(), [A])
        self.assertEqual([mock.call.remove_object("attachd-clients")], self.pool.mock_calls)
