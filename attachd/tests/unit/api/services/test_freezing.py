# SPDX-License-Identifier: Apache-2.0
"""Freezing, thawing, and failing over."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.services import freezing
from attachd.db import services
from attachd.tests import asking

ALL = (freezing.freeze, freezing.thaw, freezing.failover, freezing.failover_host)


class FreezingTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report("h@a")
        self.admin = asking.context(*asking.ADMIN)

    def refused(self, act, body, version=mv.LATEST):
        with self.assertRaises(exception.BadRequest) as caught:
            act(self.admin, body, version)
        return str(caught.exception)

    def test_a_backend_is_frozen_and_thawed(self):
        for act, expected in ((freezing.freeze, True), (freezing.thaw, False)):
            self.assertIsNone(act(self.admin, {"host": "h@a"}, mv.LATEST))
            self.assertEqual(expected, services.is_frozen(asking.BINARY, "h@a"))
            self.assertIn("h@a is", self.refused(act, {"host": "h@a"}))

    def test_nobody_else_may(self):
        for act in ALL:
            with self.assertRaises(exception.Forbidden):
                act(asking.context(), {"host": "h@a"}, mv.LATEST)

    def test_nothing_fails_over(self):
        for act in (freezing.failover, freezing.failover_host):
            self.assertIn("cannot fail over", self.refused(act, {"host": "h@a"}))

    def test_an_unknown_backend_is_a_mistake(self):
        for act in ALL:
            self.assertIn("host=h@z", self.refused(act, {"host": "h@z"}))
            self.assertIn("cluster=c", self.refused(act, {"cluster": "c"}))

    def test_one_of_host_and_cluster_is_named(self):
        both = {"host": "h@a", "cluster": "c"}
        for act in ALL:
            self.assertIn("Host field", self.refused(act, {"cluster": "c"}, mv.Version(3, 25)))
            for body in ({}, both):
                self.assertIn("One and only one", self.refused(act, body))

    def test_a_cluster_was_ignored_before_3_26(self):
        body = {"host": "h@a", "cluster": "c"}
        freezing.freeze(self.admin, body, mv.Version(3, 25))
        self.assertTrue(services.is_frozen(asking.BINARY, "h@a"))
