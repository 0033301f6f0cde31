# SPDX-License-Identifier: Apache-2.0
"""Tests of resources and actions that the service does not support."""

import functools
import unittest

from attachd import exception
from attachd.api import endpoint, unsupported
from attachd.api import microversions as mv
from attachd.tests.fixtures import api_context, db_rows


class UnsupportedResourceTest(unittest.TestCase):
    def test_unsupported_resource_returns_404_with_reason(self):
        for item in unsupported.list_endpoints():
            with self.assertRaises(exception.ResourceUnsupported) as caught:
                item.handler()
            self.assertRegex(str(caught.exception), r"^This service has no [a-z ]+\.$")
            self.assertEqual(404, caught.exception.code)

    def test_unsupported_resource_hides_no_endpoint(self):
        for api_endpoint in endpoint.load():
            urls = tuple(unsupported.UNSUPPORTED_RESOURCES)
            self.assertFalse(api_endpoint.path.startswith(urls), api_endpoint.path)


class EmptyCollectionTest(unittest.TestCase):
    def test_empty_collection_is_list_of_unsupported_resource(self):
        self.assertEqual(
            unsupported.EMPTY_COLLECTIONS.keys(), unsupported.UNSUPPORTED_RESOURCES.keys()
        )

    def test_empty_collection_counts_where_cinder_does(self):
        handlers = {
            found.path: functools.partial(found.handler, {"with_count": "True"})
            for found in unsupported.list_empty_collections()
        }
        self.assertEqual({"backups": [], "count": 0}, handlers["/backups/detail"](mv.LATEST))
        self.assertEqual({"backups": []}, handlers["/backups"](mv.Version(3, 44)))
        self.assertEqual({"group_types": []}, handlers["/group_types"](mv.LATEST))


class UnsupportedActionTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.handlers = {
            api_endpoint.action: api_endpoint.handler
            for api_endpoint in endpoint.load()
            if api_endpoint.path == unsupported.ACTION_PATH
        }

    def test_unsupported_action_returns_reason_and_changes_nothing(self):
        volume_id = db_rows.add_volume()["id"]
        before = db_rows.get_volume(volume_id)
        for unsupported_action in unsupported.UNSUPPORTED_ACTIONS:
            with self.assertRaises(exception.BadRequest) as caught:
                self.handlers[unsupported_action.name](
                    api_context.make_context(*api_context.ADMIN), volume_id
                )
            self.assertIn(f"{unsupported_action.name} is not supported", str(caught.exception))
            self.assertIn(unsupported_action.reason, str(caught.exception))
        self.assertEqual(before, db_rows.get_volume(volume_id))

    def test_unsupported_action_without_permission_is_forbidden(self):
        volume_id = db_rows.add_volume()["id"]
        for unsupported_action in unsupported.UNSUPPORTED_ACTIONS:
            with self.assertRaisesRegex(exception.Forbidden, unsupported_action.policy):
                self.handlers[unsupported_action.name](
                    api_context.make_context("reader"), volume_id
                )

    def test_unsupported_action_on_volume_of_other_project_is_not_found(self):
        volume_id = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)["id"]
        for unsupported_action in unsupported.UNSUPPORTED_ACTIONS:
            with self.assertRaises(exception.VolumeNotFound):
                self.handlers[unsupported_action.name](api_context.make_context(), volume_id)
