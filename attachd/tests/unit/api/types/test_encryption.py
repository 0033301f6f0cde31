# SPDX-License-Identifier: Apache-2.0
"""No type has encryption."""

import unittest

from attachd import exception
from attachd.api.types import encryption
from attachd.tests import asking


class EncryptionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.admin = asking.context(*asking.ADMIN)
        self.gold = asking.add_type("gold")["id"]

    def test_there_is_none(self):
        self.assertEqual({}, encryption.index(self.admin, self.gold))

    def test_there_will_be_none(self):
        with self.assertRaisesRegex(exception.BadRequest, "no encrypted volumes"):
            encryption.create(self.admin, self.gold)

    def test_least_of_all_where_hosts_share_volumes(self):
        shared = asking.add_type("shared", extra_specs={"multiattach": "<is> True"})["id"]
        with self.assertRaisesRegex(exception.BadRequest, "no encrypted .* multiattach one"):
            encryption.create(self.admin, shared)

    def test_what_is_not_there_is_not_found(self):
        for act in (encryption.show, encryption.update, encryption.delete):
            with self.assertRaisesRegex(exception.NotFound, f"{self.gold} does not exist"):
                act(self.admin, self.gold)

    def test_an_unknown_type_is_not_found(self):
        for act in (encryption.index, encryption.show, encryption.create):
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.admin, asking.new_id())
