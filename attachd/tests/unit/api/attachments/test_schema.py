# SPDX-License-Identifier: Apache-2.0
"""Tests of the schemas of connectors and ids."""

import unittest
from unittest import mock

from attachd import exception, host_identity
from attachd.api import microversions as mv
from attachd.api.attachments import schema
from attachd.tests.fixtures import conf_fixture


class IdentityTest(unittest.TestCase):
    def test_identity_is_canonicalised(self):
        stored = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        requested = {"a": stored.upper(), "b": stored.replace("-", "")}
        self.assertEqual([stored] * 2, [schema.identity(requested, name) for name in requested])


class VersionsTest(unittest.TestCase):
    def test_check_versions_refuses_field_that_request_is_too_old_for(self):
        for name, versions, needed in (
            ("expires_in", (None,), mv.ATTACHD_1_0),
            ("host", (None,), mv.ATTACHD_1_0),
            ("instead_of", (None, mv.ATTACHD_1_0), mv.ATTACHD_1_1),
            ("move_from", (None, mv.ATTACHD_1_0), mv.ATTACHD_1_1),
        ):
            for version in versions:
                with (
                    self.subTest(name, version=version),
                    self.assertRaisesRegex(exception.InvalidInput, f"{name}.*attachd {needed}"),
                ):
                    schema.check_versions(mock.Mock(attachd_version=version), {name: "x"})
            schema.check_versions(mock.Mock(attachd_version=needed), {name: "x"})

    def test_check_versions_takes_fields_of_cinder(self):
        schema.check_versions(mock.Mock(attachd_version=None), {"volume_uuid": "x", "mode": "ro"})


class ConnectorTest(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(host_identity, "MAX_CONNECTOR_SIZE", 1024))

    def test_check_connector_allows_any_key(self):
        schema.check_connector(
            {"host": "h", "multipath": "False", "wwpns": ["1", "2"], "x": {"y": [None, 1.5]}}
        )

    def test_check_connector_allows_null_values_of_cinderclient(self):
        schema.check_connector({"host": "h", "mode": "null", "mountpoint": None, "ip": None})

    def test_check_connector_with_invalid_field_names_it(self):
        cases = {
            "connector. .*'host' is a required .*attachment.connector": {"ip": "1"},
            "attribute host. .*in attachment.connector.host": {"host": ""},
            "connector.host": {"host": None},
            "host. .*no control characters": {"host": "a\nb"},
            "mountpoint. .*without control": {"host": "h", "mountpoint": "\x01"},
            "attribute host. ": {"host": "x" * 256},
            "connector.mountpoint": {"host": "h", "mountpoint": 7},
            "connector.mode": {"host": "h", "mode": "wr"},
        }
        for message, connector in cases.items():
            with self.subTest(connector), self.assertRaisesRegex(exception.InvalidInput, message):
                schema.check_connector(connector)

    def test_check_connector_above_size_limit_names_limit(self):
        schema.check_connector({"host": "h", "x": "y" * 1005})
        with self.assertRaisesRegex(exception.TooLarge, "connector .* 1024 bytes"):
            schema.check_connector({"host": "h", "x": "y" * 1006})
