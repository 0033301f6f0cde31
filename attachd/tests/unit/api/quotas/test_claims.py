# SPDX-License-Identifier: Apache-2.0
"""Tests of which error a caller gets if both quota and storage are exhausted."""

import unittest

from attachd import exception
from attachd.api.quotas import claims
from attachd.db import quotas
from attachd.tests.fixtures import api_context, db_rows


class QuotaErrorFirstTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        api_context.use(self)

    def ask(self, error=None):
        with claims.quota_error_first(db_rows.PROJECT, quotas.deltas_of_create(None, 5)):
            if error:
                raise error

    def test_no_valid_backend_within_quota_is_raised(self):
        with self.assertRaises(exception.NoValidBackend):
            self.ask(exception.NoValidBackend(reason="full"))

    def test_quota_exceeded_wins_over_no_valid_backend(self):
        quotas.set_limits(db_rows.PROJECT, {"gigabytes": 4})
        with self.assertRaisesRegex(exception.QuotaExceeded, "5 more requested, 0 of 4"):
            self.ask(exception.NoValidBackend(reason="full"))
        with self.assertRaises(exception.Unavailable):
            self.ask(exception.Unavailable(reason="x"))
        self.ask()
