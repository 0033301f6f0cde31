# SPDX-License-Identifier: Apache-2.0
"""The identities of the storage of backends."""

from unittest import mock

from attachd.db.cluster import storages
from attachd.db.engine import session
from attachd.tests.fixtures import databases

BACKEND = "here@file"


class StoragesTest(databases.DatabaseCase):
    def test_first_claim_is_kept(self):
        self.assertEqual({"a": "1"}, storages.claim(BACKEND, {"a": "1"}))
        self.assertEqual({"a": "1", "b": "2"}, storages.claim(BACKEND, {"a": "9", "b": "2"}))
        self.assertEqual({"a": "9"}, storages.claim("here@other", {"a": "9"}))
        self.assertEqual({"a": "1", "b": "2"}, storages.list_known(BACKEND))

    def test_claim_of_known_storage_is_one_statement(self):
        storages.claim(BACKEND, {"a": "1"})
        before = session.counters()
        storages.claim(BACKEND, {"a": "1"})
        self.assertEqual(1, session.counters().statements - before.statements)

    def test_claim_that_another_process_makes_first_is_its(self):
        storages.claim(BACKEND, {"a": "1"})
        real = storages.list_known
        with mock.patch.object(storages, "list_known", side_effect=[{}, real(BACKEND)]):
            self.assertEqual({"a": "1"}, storages.claim(BACKEND, {"a": "2"}))
        self.assertEqual({"a": "1"}, storages.list_known(BACKEND))

    def test_replace_removes_pools_that_are_gone(self):
        storages.claim(BACKEND, {"a": "1", "b": "2"})
        storages.claim("here@other", {"a": "1"})
        storages.replace(BACKEND, {"a": "3"})
        self.assertEqual({"a": "3"}, storages.list_known(BACKEND))
        storages.replace(BACKEND, {})
        self.assertEqual({}, storages.list_known(BACKEND))
        self.assertEqual({"a": "1"}, storages.list_known("here@other"))
