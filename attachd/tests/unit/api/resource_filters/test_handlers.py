# SPDX-License-Identifier: Apache-2.0
"""Tests of the list of filters."""

from unittest import mock

from attachd.api import filter_register
from attachd.api.resource_filters import handlers
from attachd.tests.fixtures import api_context


class ResourceFiltersTest(api_context.ApiContextCase):
    def listed(self, **query):
        found = handlers.index(query)["resource_filters"]
        return {item["resource"]: item["filters"] for item in found}

    def test_filters_of_all_lists_or_one_are_listed(self):
        self.assertEqual(
            ["volume", "snapshot", "attachment", "message", "pool", "volume_type"],
            list(self.listed()),
        )
        self.assertEqual({"pool": ["name", "volume_type"]}, self.listed(resource="pool"))
        self.assertEqual({}, self.listed(resource="x"))

    def test_filters_of_operators_file_are_listed(self):
        with mock.patch.object(filter_register, "for_members", return_value=("name",)):
            self.assertEqual({"volume": ["name"]}, self.listed(resource="volume"))
