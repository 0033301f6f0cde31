# SPDX-License-Identifier: Apache-2.0
"""The Python API, as programs see it."""

import unittest

from openstack import exceptions

from attachd import client, exception
from attachd.agent.connectors.base import Options
from attachd.tests.unit.client.stand import INFO, Stand


class ClientTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.stand = Stand(self)
        self.volume = self.stand.volume(name="disk")
        self.client = self.stand.client

    def test_openstacksdk_is_not_hidden(self):
        connection = self.stand.connection()
        self.assertIs(connection, client.Client(connection, self.stand.host).connection)

    def test_nobody_has_to_listen(self):
        quiet = client.Client(self.stand.connection(), self.stand.host)
        quiet.attach("disk")
        quiet.detach("disk")

    def test_the_connector_names_the_host(self):
        self.assertEqual("here", self.client.get_connector()["host"])
        self.assertEqual("here", self.client.get_connector(Options(multipath=True))["host"])

    def test_what_is_attached_is_told(self):
        found = self.client.attach("disk")
        self.assertIsInstance(found, client.Attached)
        self.assertEqual(
            (self.volume, "rw", None), (found.volume_id, found.mode, found.mountpoint)
        )
        self.assertEqual({**INFO, "path": found.path}, found.device)

    def test_how_it_is_connected_is_kept(self):
        self.client.attach("disk", options=Options(multipath=True))
        self.assertEqual(Options(multipath=True), self.stand.entries()[0].options)

    def test_nonsense_is_refused_before_anything_is_asked(self):
        for how in ({"mode": "wo"}, {"mode": "ro", "mkfs": "ext4"}):
            with self.assertRaises(exception.HostError):
                self.client.attach("disk", **how)
        with self.assertRaisesRegex(exception.HostError, "kind"):
            self.client.attach("disk", mkfs="../ext4")
        self.assertEqual([], self.stand.log.lines)

    def test_a_volume_that_is_not_there_is_not_found(self):
        with self.assertRaises(exceptions.NotFoundException):
            self.client.attach("disc")
        self.assertEqual([], self.stand.entries())
