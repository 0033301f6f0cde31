# SPDX-License-Identifier: Apache-2.0
"""The program that asks OSDs, with fakes of Ceph's modules."""

import errno
import io
import json
import os
import resource
import sys
import unittest
from unittest import mock

from attachd.ceph import bindings
from attachd.drivers.rbd import watch_worker
from attachd.tests.unit.drivers.rbd import fake_modules


class Ended(Exception):
    """In place of the end of the process."""


class WatchWorkerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.limits = self.enterContext(mock.patch.object(resource, "setrlimit"))
        self.enterContext(mock.patch.object(os, "_exit", side_effect=Ended))
        self.pool = self.lib.rados.Rados.return_value.open_ioctx.return_value

    def run_with(self, answers, requests):
        """Run the program with answers of the OSD; return what it prints."""
        self.pool.aio_notify.side_effect = lambda name, answered, *_: answered(
            None, *answers[name]
        )
        settings = {"entity": "client.attachd", "conf": "ceph.conf", "settings": {}}
        lines = "".join(f"{json.dumps(line)}\n" for line in (settings, *requests))
        with (
            mock.patch.object(sys, "stdin", io.StringIO(lines)),
            mock.patch.object(sys, "stdout", mock.Mock(**{"fileno.return_value": 77})),
            mock.patch.object(os, "write") as written,
            self.assertRaises(Ended),
        ):
            watch_worker.main()
        self.assertEqual({77}, {call.args[0] for call in written.call_args_list} | {77})
        return [json.loads(call.args[1]) for call in written.call_args_list]

    def test_object_without_clients_and_missing_one_are_not_watched(self):
        answers = {
            "free": (0, [], []),
            "missing": (-errno.ENOENT, None, None),
            "open": (0, [(7, 1, b"")], []),
            "hung": (-errno.ETIMEDOUT, None, None),
            "late": (0, [], [(7, 1)]),
            "refused": (-errno.EPERM, None, None),
        }
        requests = [[number, "volumes", name] for number, name in enumerate(answers)]
        expected = [[0, False], [1, False], [2, True], [3, True], [4, True], [5, True]]
        self.assertEqual(expected, self.run_with(answers, requests))
        self.lib.rados.Rados.return_value.open_ioctx.assert_called_once_with("volumes")

    def test_blocklisted_process_ends(self):
        answers = {"x": (-errno.ESHUTDOWN, None, None)}
        self.assertEqual([], self.run_with(answers, [[0, "volumes", "x"], [1, "volumes", "x"]]))
        self.pool.aio_notify.assert_called_once()

    def test_memory_is_limited(self):
        self.run_with({}, [])
        self.limits.assert_any_call(
            resource.RLIMIT_DATA, (watch_worker.MAX_DATA_BYTES, watch_worker.MAX_DATA_BYTES)
        )
