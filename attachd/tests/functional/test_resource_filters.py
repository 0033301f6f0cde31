# SPDX-License-Identifier: Apache-2.0
"""Tests that the lists accept the filters that /resource_filters returns."""

import json
import unittest

from attachd.api import filter_register
from attachd.tests.fixtures import api_context, lifetime, wsgi_api
from attachd.tests.fixtures.conf_fixture import override

LISTS = {
    "volume": "/volumes",
    "attachment": "/attachments",
    "message": "/messages",
    "pool": "/scheduler-stats/get_pools",
    "snapshot": "/snapshots",
    "volume_type": "/types",
}
VALUES = {
    "metadata": "{}",
    "glance_metadata": "{}",
    "extra_specs": "{}",
    "created_at": "gt:2026-01-01",
    "updated_at": "gt:2026-01-01",
    "volume_type": "gold",
}


class ResourceFiltersTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = wsgi_api.use(self)
        api_context.add_type("gold")
        filter_register.reset()
        self.addCleanup(filter_register.reset)

    def say(self, chosen):
        path = lifetime.temp_dir(self) / "filters.json"
        path.write_text(json.dumps(chosen), encoding="utf-8")
        override(self, "resource_query_filters_file", str(path), group="api")
        filter_register.reset()

    def listed_filters(self):
        found = self.api.request("GET", "/resource_filters").body["resource_filters"]
        return {item["resource"]: item["filters"] for item in found}

    def request(self, resource, name):
        token = wsgi_api.ADMIN if resource == "pool" else wsgi_api.MEMBER
        url = f"{LISTS[resource]}?{name}={VALUES.get(name.rstrip('~'), '1')}"
        return self.api.request("GET", url, token=token).status

    def assert_listed_filters_are_accepted(self):
        result = self.listed_filters()
        self.assertEqual(set(LISTS), set(result))
        for resource, names in result.items():
            for name in filter_register.RESOURCES[resource].known | {"colour"}:
                # Who may ask for a part of a value may ask for all of it.
                taken = name in names or f"{name}~" in names
                with self.subTest(resource=resource, name=name):
                    self.assertEqual(200 if taken else 400, self.request(resource, name))

    def test_cinder_command_list_filters_shows_default_filters(self):
        self.assert_listed_filters_are_accepted()

    def test_cinder_command_list_filters_shows_all_configured_filters(self):
        self.say(
            {name: sorted(resource.known) for name, resource in filter_register.RESOURCES.items()}
        )
        self.assert_listed_filters_are_accepted()

    def test_cinder_command_list_filters_shows_some_and_no_filters(self):
        self.say({"volume": ["name~", "host"], "attachment": [], "volume_type": ["name"]})
        self.assert_listed_filters_are_accepted()
