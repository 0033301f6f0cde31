# SPDX-License-Identifier: Apache-2.0
"""Options and connection info of the driver nfs; tests/contract has the rest."""

import dataclasses
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.nfs import driver as nfs
from attachd.drivers.nfs import pools, share
from attachd.tests.unit.drivers import configured

VOLUME = base.VolumeRef("8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11", 1)
EXPORT = base.Export("57f9a6e4-53b8-4ac9-8f12-a44ca4a5bd01", {"host": "a"})


class NfsDriverTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.call = self.enterContext(mock.patch.object(share.Share, "call", return_value=None))

    def driver(self, **options):
        return configured.driver(nfs.NfsDriver, **{"nfs_share": "storage-1:/volumes", **options})

    def test_setup_without_usable_share_names_option(self):
        for name in ("", "storage-1", "/volumes", "storage-1:volumes", "a b:/volumes", "x:/a b"):
            with self.assertRaisesRegex(exception.BackendError, "nfs_share of backend") as raised:
                self.driver(nfs_share=name).setup()
            self.assertTrue(raised.exception.final)
        self.call.assert_not_called()

    def test_setup_prepares_share(self):
        for name in ("storage-1:/", "192.0.2.5:/srv/volumes", "[2001:db8::5]:/volumes"):
            self.driver(nfs_share=name).setup()
            self.call.assert_has_calls([mock.call("prepare"), mock.call("can_discard")])

    def test_discard_is_that_of_the_share(self):
        for answer in (True, False):
            self.call.return_value = answer
            driver = self.driver()
            driver.setup()
            self.assertIs(answer, driver.grant(VOLUME, EXPORT)["data"]["discard"])

    def test_grant_names_share_of_pool(self):
        driver = self.driver(nfs_pools={"fast": "storage-2:/fast"})
        for pool, name in (
            ("", "storage-1:/volumes"),
            (configured.GROUP, "storage-1:/volumes"),
            ("fast", "storage-2:/fast"),
        ):
            volume = dataclasses.replace(VOLUME, pool=pool)
            self.assertEqual(name, driver.grant(volume, EXPORT)["data"]["export"])

    def test_grant_returns_what_os_brick_and_compute_take(self):
        info = self.driver(nfs_host_mount_options="vers=4.2,hard").grant(VOLUME, EXPORT)
        self.assertEqual("nfs", info["driver_volume_type"])
        self.assertEqual(
            {
                "export": "storage-1:/volumes",
                "name": f"exports/{VOLUME.id}/{EXPORT.attachment_id}",
                "options": "-o vers=4.2,hard",
                "format": "raw",
                "mount_point_base": "/run/attachd/mnt",
                "volume_id": VOLUME.id,
                "access_mode": "rw",
                "discard": False,
            },
            info["data"],
        )

    def test_grant_without_mount_options_has_none(self):
        self.assertNotIn("options", self.driver().grant(VOLUME, EXPORT)["data"])

    def test_grant_of_reader_is_final_unless_it_was_granted_as_writer(self):
        reader = base.Export(EXPORT.attachment_id, {}, "ro")
        for links, final in (([], True), ([[VOLUME.id, EXPORT.attachment_id]], False)):
            self.call.return_value = links
            with self.assertRaisesRegex(exception.BackendError, "mode rw") as raised:
                self.driver().grant(VOLUME, reader)
            self.assertIs(final, raised.exception.final)

    def test_share_that_is_mounted_already_is_not_mounted(self):
        with mock.patch.object(pools, "Share") as made:
            self.driver(nfs_mount_point="/srv/mnt").close()
            self.driver().close()
        points = [f"{call.args[1]} {call.args[2]}" for call in made.call_args_list]
        self.assertEqual(["/srv/mnt /var/lib/attachd/mnt", "None /var/lib/attachd/mnt"], points)
        self.assertEqual(2, made.return_value.close.call_count)
