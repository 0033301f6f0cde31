# SPDX-License-Identifier: Apache-2.0
"""A backend whose storage is another one; functional/test_other_storage.py has processes."""

from attachd import exception
from attachd.db.engine import session
from attachd.manager import storage_identity
from attachd.tests.fixtures import backends


class StorageIdentityTest(backends.BackendCase):
    def serve(self, **ids):
        self.driver.storage_ids = ids
        return self.backend.setup()

    def test_backend_with_other_storage_is_down_until_it_has_its_own_again(self):
        self.assertTrue(self.serve(a="1"))
        self.assertFalse(self.serve(a="2"))
        self.assertIn("pool a was 1 and is 2", self.backend.error)
        self.assertIn("attachd-manage storage accept fake", self.backend.error)
        with self.assertRaises(exception.BackendUnavailable):
            self.backend.check_ready()
        self.assertTrue(self.serve(a="1"))

    def test_pools_may_be_added_and_removed(self):
        for ids in ({"a": "1"}, {"a": "1", "b": "2"}, {"b": "2"}, {"a": "1"}):
            self.assertTrue(self.serve(**ids), ids)
        self.assertFalse(self.serve(a="1", b="3"))

    def test_driver_without_identity_costs_no_statement(self):
        before = session.counters()
        storage_identity.check(self.backend.host, self.driver)
        self.assertEqual(before, session.counters())
