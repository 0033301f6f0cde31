# SPDX-License-Identifier: Apache-2.0
"""Tests of the encryption of volume types, which is not supported."""

from attachd import exception
from attachd.api.types import encryption
from attachd.tests.fixtures import api_context


class EncryptionTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.admin = api_context.make_context(*api_context.ADMIN)
        self.gold = api_context.add_type("gold")["id"]

    def test_index_returns_nothing(self):
        self.assertEqual({}, encryption.index(self.admin, self.gold))

    def test_create_is_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "no encrypted volumes"):
            encryption.create(self.admin, self.gold)

    def test_create_for_multiattach_type_names_reason(self):
        shared = api_context.add_type("shared", extra_specs={"multiattach": "<is> True"})["id"]
        with self.assertRaisesRegex(exception.BadRequest, "no encrypted .* multiattach one"):
            encryption.create(self.admin, shared)

    def test_missing_encryption_is_not_found(self):
        for act in (encryption.show, encryption.update, encryption.delete):
            with self.assertRaisesRegex(exception.NotFound, f"{self.gold} does not exist"):
                act(self.admin, self.gold)

    def test_encryption_of_unknown_type_is_not_found(self):
        for act in (encryption.index, encryption.show, encryption.create):
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.admin, api_context.new_id())
