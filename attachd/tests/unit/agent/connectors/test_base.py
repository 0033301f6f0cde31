# SPDX-License-Identifier: Apache-2.0
"""The values of connectors can be stored, and each connector has all methods."""

import dataclasses
import json
import unittest

from attachd.agent.connectors.base import Device, HostConnector, Options
from attachd.tests.fixtures.fake_host import FileConnector


class ValuesTest(unittest.TestCase):
    def test_device_and_options_convert_to_json(self):
        for value in (Device("/dev/sdb", {"type": "block"}), Options(True, False, "eth0")):
            kept = json.loads(json.dumps(dataclasses.asdict(value)))
            self.assertEqual(value, type(value)(**kept))

    def test_options_default_to_one_path(self):
        self.assertEqual(Options(multipath=False, enforce_multipath=False, nic=None), Options())


class WayTest(unittest.TestCase):
    def test_connector_without_abstract_method_cannot_be_made(self):
        self.assertTrue(HostConnector.__abstractmethods__)
        for verb in HostConnector.__abstractmethods__:
            whole = {
                abstractmethod: getattr(FileConnector, abstractmethod)
                for abstractmethod in HostConnector.__abstractmethods__
            }
            del whole[verb]
            with self.assertRaisesRegex(TypeError, verb):
                type("Half", (HostConnector,), whole)()

    def test_find_device_paths_defaults_to_none(self):
        self.assertEqual([], HostConnector.find_device_paths(None, {"target": "t1"}))
