# SPDX-License-Identifier: Apache-2.0
"""Locks of writers in headers, which name any address as their owner if a host writes them."""

import dataclasses
import struct
import time

from attachd import exception
from attachd.ceph import image_header, object_names
from attachd.tests.fixtures import initiators
from attachd.tests.functional.rbd_case import GIB
from attachd.tests.functional.test_rbd_headers import BLOCK, OFFSET, HeaderCase, number
from attachd.tests.selection import full_only

ADDRESS = "192.0.2.9"
FORGED = ((0, 0), (6800, 77))
"""Port and nonce: of a whole address, of a daemon."""
_LOOPBACK = b"\2\0\0\0\x7f\0\0\1"


@full_only("storage")
class ForgedOwnerTest(HeaderCase):
    """A reader, who may write the header."""

    def setUp(self):
        super().setUp()
        self.host = self.useFixture(initiators.RbdHost(self, "b"))
        self.real, self.owner = self.real_lock()

    def header(self, volume):
        return object_names.header_name(self.id_of(volume))

    def real_lock(self):
        """Return the lock that a client has made, and this client."""
        export, info = self.granted(self.target)
        opened = initiators.OpenImage(self.host, info)
        opened.write(0, BLOCK)
        (watch,) = self.driver._pools.find(self.target).watches(self.target.id)
        with self.cluster.pool() as pool:
            lock = pool.get_xattr(self.header(self.target), image_header.LOCK)
        opened.close()
        self.driver.revoke(self.target, export, [])
        return lock, watch

    def lock(self, address, port, nonce, client_id=2**40):
        """Return a lock with any owner."""
        own = struct.pack("<I", int(self.owner.address.rpartition("/")[2]))
        place = b"\2\0" + struct.pack(">H", port) + bytes(map(int, address.split(".")))
        lock = self.real.replace(number(self.owner.client_id), number(client_id))
        return lock.replace(own, struct.pack("<I", nonce)).replace(_LOOPBACK, place)

    def forge(self, volume, lock):
        export, info = self.granted(volume, "ro")
        self.connect(info).set_xattr(self.header(volume), image_header.LOCK, lock)
        return export

    def blocklisted(self):
        """Return the forged addresses that are blocklisted, and remove them."""
        found = [entry for entry in self.cluster.blocklist() if ADDRESS in entry]
        for entry in found:
            self.cluster.command("osd blocklist", blocklistop="rm", addr=entry)
        return found

    def test_whole_address_or_daemon_in_lock_is_blocklisted_by_nothing(self):
        for port, nonce in FORGED:
            volume = self.volume()
            self.write_block(volume, BLOCK)
            export = self.forge(volume, self.lock(ADDRESS, port, nonce))
            with self.assertRaisesRegex(exception.BackendError, "Detach the volume"):
                self.driver.extend(volume, 2, [export])
            self.assertEqual([], self.blocklisted())
            self.driver.revoke(volume, export, [])
            self.assertEqual([], self.blocklisted())
            self.driver.extend(volume, 2, [])
            self.assertEqual(2 * GIB, self.driver.list_volumes()[volume.id])

    def test_lock_that_no_client_can_break_ends_with_access_of_hosts(self):
        volume = self.victim
        export = self.forge(volume, self.lock(ADDRESS, *FORGED[0]))
        self.driver.revoke(volume, export, [])
        _, info = self.granted(volume)
        self.host.write(info, OFFSET, BLOCK)
        self.assertEqual([], self.blocklisted())

    def test_extension_ends_owner_that_is_known_to_nothing_and_no_client_of_another_user(self):
        volume = self.victim
        export = self.forge(volume, self.lock(ADDRESS, 0, 77))
        self.driver.extend(volume, 2, [export])
        self.assertEqual([f"{ADDRESS}:0/77"], self.blocklisted())
        address = self.cluster.admin().get_addrs()
        nonce = int(address.partition("/")[2].rstrip("]").partition(",")[0])
        lock = self.lock("127.0.0.1", 0, nonce, self.cluster.admin().get_instance_id())
        with self.cluster.pool() as pool:
            pool.set_xattr(self.header(volume), image_header.LOCK, lock)
        with self.assertRaisesRegex(exception.BackendError, "of another user"):
            self.driver.extend(dataclasses.replace(volume, size_gib=2), 3, [export])
        self.assertFalse([it for it in self.cluster.blocklist() if it.endswith(f"/{nonce}")])

    def test_detach_of_host_with_many_clients_takes_no_second_for_each(self):
        export, info = self.granted(self.victim, "ro")
        for _ in range(20):
            self.log_in(info)
        started = time.monotonic()
        self.driver.revoke(self.victim, export, [])
        self.assertLess(time.monotonic() - started, 10)
        entity = f"client.{info['data']['auth_username']}"
        named = [it for it in self.cluster.sessions() if it["entity_name"] == entity]
        self.assertEqual(20, len(named))
        places = [place for it in named for place in it["addrs"]["addrvec"]]
        addresses = {f"{place['addr']}/{place['nonce']}" for place in places}
        self.assertEqual(set(), addresses - set(self.cluster.blocklist()))
