# SPDX-License-Identifier: Apache-2.0
"""A test case of the driver rbd on a real cluster."""

import multiprocessing
import os
import signal
import uuid

import testtools

from attachd.ceph import bindings
from attachd.drivers import base
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.contract.backends import Ceph
from attachd.tests.fixtures import ceph
from attachd.tests.unit.drivers import configured
from attachd.tests.wait import wait_until

GIB = 2**30


def new_id():
    return f"{uuid.uuid4()}"


class RbdCase(testtools.TestCase):
    """A driver on the cluster of the process, with a prefix of its own."""

    def setUp(self):
        super().setUp()
        self.backend = self.useFixture(Ceph(self))
        self.cluster = ceph.shared(self)
        self.driver = self.new_driver()

    def new_driver(self, **options):
        driver = configured.driver(RbdDriver, **{**self.backend.options(), **options})
        self.addCleanup(driver.close)
        driver.setup()
        return driver

    def volume(self):
        asked = base.VolumeRef(new_id(), 1)
        volume = base.VolumeRef(asked.id, 1, self.driver.create(asked))
        self.addCleanup(self.driver.delete, volume)
        return volume

    def granted(self, volume, mode="rw"):
        export = base.Export(new_id(), {"host": "a"}, mode)
        self.addCleanup(self.driver.revoke, volume, export, [])
        return export, self.driver.grant(volume, export)

    def read_objects(self, info):
        """Return the data of an image, by the names of its objects."""
        pool, _, name = info["data"]["name"].partition("/")
        # The OSD learns of the blocklist from a client that knows it, as each new host does.
        self.cluster.admin().wait_for_latest_osdmap()
        with self.cluster.pool(pool) as ioctx:
            with bindings.load().rbd.Image(ioctx, name, read_only=True) as image:
                prefix = f"rbd_data.{image.id()}."
            return {item: ioctx.read(item, 2**22) for item in self.cluster.objects(prefix)}

    def wait_until_forgotten(self, entity):
        """Wait until the monitor has no session of a user."""
        wait_until(lambda: entity not in {it["entity_name"] for it in self.cluster.sessions()})

    def each_death(self, method, *arguments):
        """Kill a call at each of its changes; yields after each death."""
        spawned = multiprocessing.get_context("spawn")
        for number in range(1, 50):
            everything = (self.backend.options(), method, arguments, number)
            process = spawned.Process(target=_run_until_killed, args=everything)
            process.start()
            process.join()
            if process.exitcode == 0:
                self.assertGreater(number, 1)
                return
            self.assertEqual(-signal.SIGKILL, process.exitcode)
            yield number
        self.fail("it never ends")


def _run_until_killed(options, method, arguments, number):
    """Call a driver's method in a process that dies before its n-th change."""
    driver = configured.driver(RbdDriver, **options)
    driver.setup()
    left = number

    def check():
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    with base.ownership(check):
        getattr(driver, method)(*arguments)
