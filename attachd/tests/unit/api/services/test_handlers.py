# SPDX-License-Identifier: Apache-2.0
"""The list of services, and switching them."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.services import handlers
from attachd.tests import asking


class ServicesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report("h@a")
        asking.report("h@b")
        asking.report("other@a", binary="attachd-agent", report=None)

    def hosts(self, **query):
        return [each["host"] for each in handlers.index(query, mv.LATEST)["services"]]

    def status(self, host):
        (found,) = handlers.index({"host": host}, mv.LATEST)["services"]
        return found["status"], found["disabled_reason"]

    def test_filters(self):
        self.assertEqual(["other@a", "h@a", "h@b"], self.hosts())
        self.assertEqual(["h@a", "h@b"], self.hosts(host="h"))
        self.assertEqual(["h@b"], self.hosts(host="h@b"))
        self.assertEqual(["other@a"], self.hosts(binary="attachd-agent"))
        self.assertEqual([], self.hosts(binary="attachd-agent", host="h"))
        for name in (asking.BINARY, "cinder-volume"):
            self.assertEqual(["h@a", "h@b"], self.hosts(binary=name))

    def test_a_backend_is_switched_off_and_on(self):
        body = {"host": "h@a", "binary": asking.BINARY}
        shown = handlers.disable(body)
        self.assertEqual(("disabled", True), (shown["status"], shown["disabled"]))
        self.assertEqual(("disabled", None), self.status("h@a"))
        self.assertEqual(("enabled", None), self.status("h@b"))
        shown = handlers.enable(body)
        self.assertEqual(("enabled", False), (shown["status"], shown["disabled"]))
        self.assertEqual(("enabled", None), self.status("h@a"))

    def test_a_reason_is_kept_until_it_is_switched_on(self):
        body = {"host": "h@a", "binary": asking.BINARY}
        shown = handlers.disable_with_reason({**body, "disabled_reason": "smoke"})
        self.assertEqual("smoke", shown["disabled_reason"])
        self.assertEqual(("disabled", "smoke"), self.status("h@a"))
        handlers.enable(body)
        self.assertEqual(("enabled", None), self.status("h@a"))

    def test_the_old_name_of_binary_will_do(self):
        shown = handlers.disable({"host": "h@a", "service": "cinder-volume"})
        self.assertEqual(("cinder-volume", ""), (shown["service"], shown["binary"]))
        self.assertEqual("disabled", self.status("h@a")[0])

    def test_an_unknown_one_is_not_found(self):
        for act in (handlers.enable, handlers.disable, handlers.disable_with_reason):
            with self.assertRaisesRegex(exception.NotFound, "nowhere"):
                act({"host": "nowhere", "binary": asking.BINARY})
