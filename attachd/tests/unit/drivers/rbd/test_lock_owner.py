# SPDX-License-Identifier: Apache-2.0
"""Owners of locks, as hosts name them, and what is ended of them."""

import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import image_header
from attachd.drivers.rbd import lock_owner
from attachd.drivers.rbd.cluster import Cluster, Session
from attachd.drivers.rbd.image_clients import Watch
from attachd.drivers.rbd.images import Images
from attachd.drivers.rbd.users import Image

OWN = "client.attachd-1"


def session(number, entity=OWN):
    return Session(number, entity, (f"127.0.0.1:0/{number}",))


class LockOwnerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = mock.create_autospec(Cluster, instance=True)
        self.images = mock.MagicMock(spec=Images, errors=mock.MagicMock())
        self.images.find.return_value = Image("volumes", "attachd-volume", "10ac")
        self.pool = self.images.open_pool.return_value.__enter__.return_value
        self.broken = self.enterContext(mock.patch.object(image_header, "break_lock"))
        self.images.watches.return_value = []
        self.cluster.sessions.return_value = []

    def end_dead(self):
        lock_owner.end_dead(self.cluster, self.images, "volume", lambda: {OWN})

    def test_owner_of_own_user_that_does_not_watch_is_ended(self):
        for number in (1, 9):
            owner = Watch(number, f"127.0.0.1:0/{number}", "auto 1")
            self.images.lock_owner.return_value = owner
            self.cluster.sessions.return_value = [session(1)]
            self.end_dead()
            self.cluster.blocklist.assert_called_with(owner.address)
            self.broken.assert_called_with(self.pool, "10ac", number, "auto 1")

    def test_owner_that_watches_or_has_released_the_lock_is_spared(self):
        owner = Watch(9, "127.0.0.1:0/9", "auto 1")
        for watches, owners in (([owner], [owner]), ([], [owner, None]), ([], [None])):
            self.images.lock_owner.side_effect = owners
            self.images.watches.return_value = watches
            self.end_dead()
        self.cluster.blocklist.assert_not_called()
        self.broken.assert_not_called()

    def test_client_of_another_user_that_the_lock_names_is_spared(self):
        self.cluster.sessions.return_value = [session(7, "client.admin"), session(1)]
        for number, address in ((7, 7), (9, 7), (7, 9), (9, 1), (1, 9), (1, 7)):
            self.images.lock_owner.return_value = Watch(number, f"127.0.0.1:0/{address}", "auto 1")
            with self.assertRaisesRegex(exception.BackendError, "of another user"):
                self.end_dead()
        self.cluster.blocklist.assert_not_called()
