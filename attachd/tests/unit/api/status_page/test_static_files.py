# SPDX-License-Identifier: Apache-2.0
"""Tests of the files of the status page, as the API sends them."""

import gzip
import re
import unittest

from attachd.api import app
from attachd.api.status_page import static_files
from attachd.tests.fixtures import conf_fixture, wsgi_api

MAX_PAGE = 300 * 1024
"""Bytes of the whole page, before compression."""


class StaticFilesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = wsgi_api.use(self)
        conf_fixture.override(self, "enabled", True, "ui")
        self.api.application = app.make_app()

    def get(self, path, method="GET", **environ):
        made = wsgi_api.WsgiApi._environ(method, path, b"")
        found = {}

        def start(status, headers):
            found.update({name.lower(): value for name, value in headers}, status=status[:3])

        found["content"] = b"".join(self.api.application({**made, **environ}, start))
        return found

    def test_page_and_its_files_are_sent_without_authentication(self):
        for path, content_type in (
            ("/ui/", "text/html; charset=utf-8"),
            ("/ui/index.html", "text/html; charset=utf-8"),
            ("/ui/main.js", "text/javascript; charset=utf-8"),
            ("/ui/vendor/lit-html.js", "text/javascript; charset=utf-8"),
            ("/ui/pages/host.js", "text/javascript; charset=utf-8"),
            ("/ui/style.css", "text/css; charset=utf-8"),
            ("/ui/icon.svg", "image/svg+xml"),
        ):
            with self.subTest(path):
                found = self.get(path)
                self.assertEqual(("200", content_type), (found["status"], found["content-type"]))
                self.assertEqual(int(found["content-length"]), len(found["content"]))
                head = self.get(path, "HEAD")
                self.assertEqual((b"", "200"), (head["content"], head["status"]))

    def test_page_without_slash_redirects_relative_to_prefix(self):
        found = self.get("/ui", SCRIPT_NAME="/volume")
        self.assertEqual(("308", "ui/"), (found["status"], found["location"]))

    def test_other_paths_are_not_files(self):
        for path in (
            "/ui/../app.py",
            "/ui/static_files.py",
            "/ui/vendor/",
            "/ui/vendor/README.rst",
        ):
            with self.subTest(path):
                self.assertEqual("404", self.get(path)["status"])
        self.assertEqual("404", self.get("/uix")["status"])
        self.assertEqual("300", self.get("/")["status"])

    def test_other_methods_are_refused(self):
        found = self.get("/ui/", "POST")
        self.assertEqual(("405", "GET, HEAD"), (found["status"], found["allow"]))

    def test_unchanged_file_is_not_sent_again(self):
        found = self.get("/ui/main.js")
        again = self.get("/ui/main.js", HTTP_IF_NONE_MATCH=found["etag"])
        self.assertEqual(("304", b""), (again["status"], again["content"]))
        other = self.get("/ui/main.js", HTTP_IF_NONE_MATCH='"other"')
        self.assertEqual("200", other["status"])

    def test_compressed_file_has_same_content(self):
        found = self.get("/ui/main.js")
        packed = self.get("/ui/main.js", HTTP_ACCEPT_ENCODING="gzip, br")
        self.assertEqual("gzip", packed["content-encoding"])
        self.assertEqual(found["content"], gzip.decompress(packed["content"]))
        self.assertNotEqual(found["etag"], packed["etag"])
        self.assertNotIn("content-encoding", found)

    def test_headers_forbid_inline_code_and_other_origins(self):
        for path in ("/ui/", "/ui", "/ui/absent", "/ui/settings.json"):
            found = self.get(path)
            policy = found["content-security-policy"]
            self.assertIn("default-src 'none'; script-src 'self'; style-src 'self';", policy)
            self.assertIn("connect-src 'self';", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual("nosniff", found["x-content-type-options"])
            self.assertEqual("no-referrer", found["referrer-policy"])
            self.assertNotIn("set-cookie", found)

    def test_page_names_no_other_server_and_has_no_inline_code(self):
        page = self.get("/ui/")["content"].decode()
        self.assertEqual([], re.findall(r"(?:src|href)=\"(?:https?:)?//", page))
        self.assertEqual([], re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", page))

    def test_whole_page_is_small(self):
        files = static_files.StatusPage(self.api.application)._files
        self.assertLess(sum(len(file.content) for file in files.values()), MAX_PAGE)

    def test_settings_name_strategy_and_allow_keystone_only(self):
        self.assertEqual(
            b'{"auth_strategy": "noauth", "keystone_url": null}',
            self.get("/ui/settings.json")["content"],
        )
        conf_fixture.override(self, "auth_strategy", "keystone", "api")
        conf_fixture.override(self, "keystone_url", "https://keys.example.org:5000/v3", "ui")
        self.api.application = static_files.StatusPage(self.api.application)
        policy = self.get("/ui/")["content-security-policy"]
        self.assertIn("connect-src 'self' https://keys.example.org:5000;", policy)
        self.assertIn(
            b"https://keys.example.org:5000/v3", self.get("/ui/settings.json")["content"]
        )

    def test_disabled_page_is_not_served(self):
        conf_fixture.override(self, "enabled", False, "ui")
        self.api.application = app.make_app()
        self.assertEqual("404", self.get("/ui/")["status"])
