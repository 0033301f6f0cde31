# SPDX-License-Identifier: Apache-2.0
"""Tests of links in responses."""

import unittest

import webob

from attachd.api import links
from attachd.conf import CONF


class LinksTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(CONF.clear_override, "public_endpoint", group="api")
        self.request = webob.Request.blank("/v3/x", base_url="http://h:8776/volume")

    def test_links_have_url_of_request(self):
        made = links.Links(self.request, "p1").of("volumes", "v1")
        self.assertEqual(
            [
                {"rel": "self", "href": "http://h:8776/volume/v3/p1/volumes/v1"},
                {"rel": "bookmark", "href": "http://h:8776/volume/p1/volumes/v1"},
            ],
            made,
        )

    def test_links_have_no_project_if_request_had_none(self):
        made = links.Links(self.request, None).of("volumes", "v1")
        self.assertEqual("http://h:8776/volume/v3/volumes/v1", made[0]["href"])

    def test_links_have_public_endpoint_if_configured(self):
        for given in ("https://cloud/vol", "https://cloud/vol/", "https://cloud/vol/v3/"):
            with self.subTest(given):
                CONF.set_override("public_endpoint", given, group="api")
                self.assertEqual("https://cloud/vol", links.root(self.request))

    def test_next_link_has_marker_and_same_filters(self):
        query = {"status": "in use", "limit": "2", "marker": "old", "offset": "4"}
        (link,) = links.Links(self.request, "p1").next("/volumes", query, "v9")
        self.assertEqual(
            "http://h:8776/volume/v3/p1/volumes?status=in+use&limit=2&marker=v9", link["href"]
        )
