# SPDX-License-Identifier: Apache-2.0
"""The program that extends one image, against a fake rbd."""

import io
import json
import sys
import unittest
from unittest import mock

from attachd.ceph import bindings
from attachd.drivers.rbd import resize_worker
from attachd.linux import sandbox
from attachd.tests.unit.drivers.rbd import fake_modules

REQUEST = {
    "entity": "client.x",
    "conf": "/c",
    "settings": {"key": "KEY"},
    "ports": [3300],
    "pool": "p",
    "name": "n",
    "size": 2,
}


class ResizeWorkerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.limit_ports = self.enterContext(mock.patch.object(sandbox, "limit_ports"))
        self.enter = self.enterContext(mock.patch.object(sandbox, "give_up_files"))
        self.opened = self.lib.rbd.Image = mock.MagicMock()
        self.image = self.opened.return_value.__enter__.return_value
        self.image.size.return_value = 1

    def run_worker(self):
        lines = io.StringIO(f"{json.dumps(REQUEST)}\n")
        with (
            mock.patch.object(sys, "stdin", lines),
            mock.patch.object(sys, "stdout", io.StringIO()) as output,
        ):
            resize_worker.main()
        return json.loads(output.getvalue())

    def test_image_is_opened_in_the_sandbox_and_extended(self):
        self.limit_ports.side_effect = lambda _: self.lib.rados.Rados.assert_not_called()
        self.enter.side_effect = self.opened.assert_not_called
        self.assertEqual({}, self.run_worker())
        self.image.resize.assert_called_once_with(2)
        self.limit_ports.assert_called_once_with([3300])
        self.enter.assert_called_once_with()

    def test_image_is_not_opened_without_a_sandbox(self):
        self.enter.side_effect = OSError(38, "Function not implemented")
        self.assertIn("No sandbox can be made", self.run_worker()["error"])
        self.opened.assert_not_called()

    def test_larger_image_stays(self):
        self.image.size.return_value = 2
        self.assertEqual({}, self.run_worker())
        self.image.resize.assert_not_called()

    def test_error_of_library_is_the_answer(self):
        self.opened.side_effect = fake_modules.Error("garbled", 22)
        self.assertEqual({"errno": 22, "error": "garbled"}, self.run_worker())
        self.lib.rados.Rados.return_value.shutdown.assert_called_once_with()
