# SPDX-License-Identifier: Apache-2.0
"""The driver rbd in short; ``tox -e full`` runs the whole suite on it."""

import dataclasses
import uuid

import testtools

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.contract.backends import Ceph
from attachd.tests.fixtures import initiators
from attachd.tests.selection import full_only
from attachd.tests.unit.drivers import configured


@full_only("storage")
class RbdTest(testtools.TestCase):
    """One cluster, two hosts."""

    def setUp(self):
        super().setUp()
        self.backend = self.useFixture(Ceph(self))
        self.driver = configured.driver(RbdDriver, **self.backend.options())
        self.addCleanup(self.driver.close)
        self.driver.setup()

    def test_hosts_reach_their_image_in_their_mode_until_it_is_revoked(self):
        asked = [base.VolumeRef(f"{uuid.uuid4()}", 1) for _ in range(2)]
        volume, other = (base.VolumeRef(it.id, 1, self.driver.create(it)) for it in asked)
        writer = base.Export(f"{uuid.uuid4()}", {"host": "a"})
        reader = base.Export(f"{uuid.uuid4()}", {"host": "b"}, "ro")
        infos = [self.driver.grant(volume, export) for export in (writer, reader)]
        self.assertEqual(infos[0], self.driver.grant(volume, writer))
        self.assertEqual(
            set(self.driver.expected_exports(volume, [writer, reader])),
            set(self.driver.list_volume_exports(volume)),
        )

        hosts = [self.backend.host(name) for name in "ab"]
        hosts[0].write(infos[0], 0, b"data" * 128)
        self.assertEqual(b"data" * 128, hosts[1].read(infos[1], 0, 512))
        liar = {**infos[1], "data": {**infos[1]["data"], "access_mode": "rw"}}
        self.assertRaises(initiators.Refused, hosts[1].write, liar, 0, b"x" * 512)
        wrong = {**infos[0], "data": {**infos[0]["data"], "name": self._name(infos[0], other)}}
        self.assertRaises(initiators.Refused, hosts[0].read, wrong, 0, 512)

        self.assertRaises(exception.BackendError, self.driver.delete, volume)
        self.driver.revoke(volume, writer, [reader])
        self.assertRaises(initiators.Refused, hosts[0].read, infos[0], 0, 512)
        self.assertEqual(b"data" * 128, hosts[1].read(infos[1], 0, 512))
        self.driver.revoke(volume, dataclasses.replace(reader, mode="rw"), [])
        for created in (volume, other):
            self.driver.delete(created)
        self.assertEqual([], self.backend.orphans())

    @staticmethod
    def _name(info: base.ConnectionInfo, volume: base.VolumeRef) -> str:
        return f"{info['data']['name'][: -len(volume.id)]}{volume.id}"
