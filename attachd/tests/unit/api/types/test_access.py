# SPDX-License-Identifier: Apache-2.0
"""Tests of the access of projects to private volume types."""

from attachd import exception
from attachd.api.types import access
from attachd.tests.fixtures import api_context


class AccessTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.admin = api_context.make_context(*api_context.ADMIN)
        self.hidden = api_context.add_type("hidden", is_public=False)["id"]
        self.public = api_context.add_type("gold")["id"]

    def listed(self):
        return access.index(self.admin, self.hidden)["volume_type_access"]

    def test_access_of_projects_is_added_listed_and_removed(self):
        self.assertEqual([], self.listed())
        access.add_access(self.admin, self.hidden, {"project": "p"})
        self.assertEqual([{"volume_type_id": self.hidden, "project_id": "p"}], self.listed())
        access.remove_access(self.admin, self.hidden, {"project": "p"})
        self.assertEqual([], self.listed())

    def test_duplicate_add_and_remove_are_refused(self):
        access.add_access(self.admin, self.hidden, {"project": "p"})
        with self.assertRaises(exception.TypeAccessExists):
            access.add_access(self.admin, self.hidden, {"project": "p"})
        with self.assertRaises(exception.TypeAccessNotFound):
            access.remove_access(self.admin, self.hidden, {"project": "q"})

    def test_access_of_public_type_is_refused(self):
        with self.assertRaisesRegex(exception.NotFound, "public"):
            access.index(self.admin, self.public)
        for act in (access.add_access, access.remove_access):
            with self.assertRaisesRegex(exception.InvalidVolumeType, "public"):
                act(self.admin, self.public, {"project": "p"})

    def test_access_of_unknown_type_is_not_found(self):
        with self.assertRaises(exception.VolumeTypeNotFound):
            access.index(self.admin, api_context.new_id())
        for act in (access.add_access, access.remove_access):
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.admin, api_context.new_id(), {"project": "p"})
