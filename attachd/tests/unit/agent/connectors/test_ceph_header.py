# SPDX-License-Identifier: Apache-2.0
"""Headers of images, compared by a host; functional/test_hostile_images.py: on a cluster."""

import contextlib
import unittest
from unittest import mock

from attachd import exception
from attachd.agent.connectors import ceph_header
from attachd.agent.connectors.qemu import blockdev
from attachd.ceph import bindings, image_header
from attachd.tests.unit.drivers.rbd import fake_modules


class CheckTest(unittest.TestCase):
    """A header with the keys that are stored, or others."""

    def setUp(self):
        super().setUp()
        lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=lib))
        self.pool = fake_modules.Pool(lib)
        self.pool.add_header("10ab")
        stored = image_header.describe("10ab", image_header.read(self.pool, "10ab"))
        self.info = {"name": "volumes/v1", "image": stored}
        reached = mock.patch.object(ceph_header, "_pool", self.reach)
        self.enterContext(reached)

    @contextlib.contextmanager
    def reach(self, info):
        yield self.pool

    def test_header_as_stored_of_any_size_passes(self):
        ceph_header.check(self.info)
        self.pool.add_header("10ab", size=(2**40).to_bytes(8, "little"))
        ceph_header.check(self.info)

    def test_changed_header_is_refused_with_its_keys(self):
        self.pool.add_header("10ab", migration=b"x")
        with self.assertRaisesRegex(exception.HostError, "v1 was changed by a host: migration"):
            ceph_header.check(self.info)
        self.pool.objects.clear()
        with self.assertRaisesRegex(exception.HostError, "features, object_prefix, order"):
            ceph_header.check(self.info)

    def test_connection_without_stored_header_is_refused(self):
        for image in (None, {}, {"id": "10ab"}):
            with self.assertRaisesRegex(exception.HostError, "does not say what the header"):
                ceph_header.check({**self.info, "image": image})

    def test_missing_modules_are_named(self):
        self.assertEqual([], ceph_header.missing_requirements())
        with mock.patch.object(bindings, "is_installed", return_value=False):
            self.assertIn("python3-rados", f"{ceph_header.missing_requirements()}")


class SettingsTest(unittest.TestCase):
    """Options of a client of Ceph."""

    def test_settings_have_monitors_and_key(self):
        info = {
            "hosts": ["192.0.2.1", "2001:db8::1"],
            "ports": ["6789", "3300"],
            "keyring": "[client.x]\n\tkey = QVE=\n",
            "ms_mode": "secure",
        }
        expected = {
            "mon_host": "192.0.2.1:6789,[2001:db8::1]:3300",
            "key": "QVE=",
            "ms_client_mode": "secure",
            "ms_mon_client_mode": "secure",
        }
        self.assertEqual(expected, blockdev.ceph_settings(info))
        self.assertEqual({}, blockdev.ceph_settings({}))
        self.assertRaises(ValueError, blockdev.ceph_settings, {"ms_mode": "none"})
