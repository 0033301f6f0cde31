# SPDX-License-Identifier: Apache-2.0
"""The data of volumes on a share, which passes in a file in memory."""

import os
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.nfs.share_data import ShareAccess
from attachd.tests.unit.drivers.nfs.test_file_worker import VOLUME_ID, Case

_MIB = 2**20


class ShareDataTest(Case):
    def setUp(self):
        super().setUp()
        self.access = ShareAccess()
        self.share = mock.Mock(call=self.call)
        self.access.pools = mock.Mock(**{"share_of.return_value": self.share})
        self.buffers = set()

    def call(self, method, *arguments, buffer=-1):
        self.buffers.add(buffer)
        self.files.buffer = buffer
        return getattr(self.files, method)(*arguments)

    def test_written_data_is_read(self):
        with self.access.open_data(base.VolumeRef(VOLUME_ID, 1), "rw") as data:
            data.write(_MIB, b"data" * 1000)
            data.write(0, b"abc")
            self.assertEqual(b"data" * 1000, data.read(_MIB, 4000))
            self.assertEqual(b"abc\0\0", data.read(0, 5))
        for buffer in self.buffers - {-1}:
            self.assertRaises(OSError, os.fstat, buffer)

    def test_missing_volume_is_refused(self):
        missing = base.VolumeRef("5b0f3a52-5ed0-4a4b-9f0d-6f6a0f1d7a99", 1)
        with (
            self.assertRaisesRegex(exception.BackendError, "is missing"),
            self.access.open_data(missing, "rw"),
        ):
            pass
