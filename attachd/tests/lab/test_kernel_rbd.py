# SPDX-License-Identifier: Apache-2.0
"""The rbd driver with the kernel's client, on a Ceph cluster of this machine.

Guests have no ceph-common: images are mapped as the command ``rbd`` does it, by sysfs.
"""

import secrets

from attachd.tests.functional.rbd_case import GIB, RbdCase
from attachd.tests.lab import ceph_forwarder, guests
from attachd.tests.wait import wait_until

BLOCK = 4096
PATTERN = 7
_BUS = "/sys/bus/rbd"


class KernelRbdTest(RbdCase):
    """Two hosts that map images."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a, cls.b = guests.boot(cls, hosts=2)
        for guest in (cls.a, cls.b):
            guest.run("modprobe rbd")

    def setUp(self):
        super().setUp()
        self.image = self.volume()
        _export, self.info = self.granted(self.image)
        for guest in (self.a, self.b):
            ceph_forwarder.start(self, self.cluster, guest)
            self.addCleanup(self.unmap_all, guest)

    @staticmethod
    def unmap_all(guest):
        guest.run(
            f"for number in $(ls {_BUS}/devices); do "
            f'echo "$number force" > {_BUS}/remove_single_major; done'
        )

    def map(self, guest, mode="rw", *, as_writer=True):
        """Grant access and map the image; return the export.

        :param as_writer: whether the kernel takes the device for one that may be written
        """
        export, info = self.granted(self.image, mode)
        data = info["data"]
        pool, _, name = data["name"].partition("/")
        key = data["keyring"].partition("key = ")[2].strip()
        options = f"name={data['auth_username']},secret={key}{'' if as_writer else ',ro'}"
        monitor = f"127.0.0.1:{data['ports'][0]}"
        guest.run(f"echo '{monitor} {options} {pool} {name} -' > {_BUS}/add_single_major")
        number = guest.run(f"ls {_BUS}/devices").decode().split()[-1]
        guest.path = f"/dev/rbd{number}"
        guest.run(f"udevadm settle; test -b {guest.path}")
        return export

    def written(self):
        """Return the data of the image."""
        return self.read_objects(self.info)

    def test_data_of_one_host_is_read_by_the_other_which_sees_it_grow(self):
        self.map(self.a)
        data = secrets.token_bytes(BLOCK)
        self.a.write(GIB - BLOCK, data)
        self.map(self.b)
        self.assertEqual(data, self.b.read(GIB - BLOCK, BLOCK))
        self.driver.extend(self.image, 2, [])
        size = f"blockdev --getsize64 {self.b.path}"
        wait_until(lambda: int(self.b.run(size)) == 2 * GIB)
        self.b.write(2 * GIB - BLOCK, data)

    def test_cluster_refuses_write_of_reader_also_without_read_only_device(self):
        self.map(self.a)
        data = secrets.token_bytes(BLOCK)
        self.a.write(0, data)
        self.map(self.b, "ro", as_writer=False)
        self.assertEqual(data, self.b.read(0, BLOCK))
        with self.assertRaisesRegex(guests.Failed, "not permitted|Input/output error"):
            self.b.write(0, secrets.token_bytes(BLOCK))
        self.unmap_all(self.b)
        # The kernel locks the object map first.
        with self.assertRaisesRegex(guests.Failed, "not permitted"):
            self.map(self.b, "ro")
        self.assertEqual(data, self.a.read(0, BLOCK))

    def test_revoked_writer_fails_and_other_goes_on(self):
        leaving, staying = self.map(self.a), self.map(self.b)
        flood = guests.Flood(self.a, PATTERN, 256)
        wait_until(self.written)
        self.driver.revoke(self.image, leaving, [staying])
        before = self.written()
        self.assertIn("Input/output error", flood.wait_for_error())
        self.assertEqual(before, self.written())
        self.b.write(GIB - BLOCK, secrets.token_bytes(BLOCK))

    def test_nothing_of_forgotten_host_without_cable_arrives_after_fence(self):
        self.addCleanup(self.cluster.set_session_timeout)
        self.cluster.set_session_timeout(20)
        export = self.map(self.a)
        self.driver.remember_clients()
        flood = guests.Flood(self.a, PATTERN, 256)
        wait_until(self.written)
        self.a.cut_off()
        self.addCleanup(self.a.plug_in)
        self.wait_until_forgotten(
            f"client.{self.backend.options()['rbd_prefix']}{export.attachment_id}"
        )
        self.driver.end_remembered_clients(self.image, export)
        self.driver.revoke(self.image, export, [])
        before = self.written()
        self.a.plug_in()
        self.assertIn("Input/output error", flood.wait_for_error())
        self.assertEqual(before, self.written())

    def test_unmap_by_force_ends_a_writer(self):
        self.map(self.a)
        flood = guests.Flood(self.a, PATTERN, 256)
        wait_until(self.written)
        self.unmap_all(self.a)
        before = self.written()
        self.assertIn("Input/output error", flood.wait_for_error())
        self.assertEqual(before, self.written())
        self.assertEqual("", self.a.run(f"ls {_BUS}/devices").decode())
