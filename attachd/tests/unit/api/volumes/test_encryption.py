# SPDX-License-Identifier: Apache-2.0
"""Whoever asks how a volume is encrypted hears that it is not."""

import unittest
from unittest import mock

from attachd import exception
from attachd.api.volumes import encryption, load


class EncryptionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        patched = mock.patch.object(load, "volume")
        self.loaded = patched.start()
        self.addCleanup(patched.stop)

    def test_there_is_no_key(self):
        self.assertEqual({"encryption_key_id": None}, encryption.index(mock.sentinel.ctx, "v"))

    def test_the_volume_has_to_be_the_callers(self):
        self.loaded.side_effect = exception.VolumeNotFound(volume_id="v")
        with self.assertRaises(exception.VolumeNotFound):
            encryption.show(mock.sentinel.ctx, "v", "encryption_key_id")

    def test_another_field_is_not_there(self):
        self.assertIsNone(encryption.show(mock.sentinel.ctx, "v", "encryption_key_id"))
        with self.assertRaisesRegex(exception.NotFound, "has no cipher"):
            encryption.show(mock.sentinel.ctx, "v", "cipher")
