# SPDX-License-Identifier: Apache-2.0
"""What a connector has to be."""

import unittest

from attachd import exception
from attachd.api.attachments import schema
from attachd.conf import CONF


class IdentityTest(unittest.TestCase):
    def test_it_is_read_as_rows_have_it(self):
        stored = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        wanted = {"a": stored.upper(), "b": stored.replace("-", "")}
        self.assertEqual([stored] * 2, [schema.identity(wanted, name) for name in wanted])


class ConnectorTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        CONF.set_override("max_connector_size", 1024, group="api")
        self.addCleanup(CONF.clear_override, "max_connector_size", group="api")

    def test_any_key_is_let_through(self):
        schema.check_connector(
            {"host": "h", "multipath": "False", "wwpns": ["1", "2"], "x": {"y": [None, 1.5]}}
        )

    def test_what_cinderclient_sends_for_nothing_is_let_through(self):
        schema.check_connector({"host": "h", "mode": "null", "mountpoint": None, "ip": None})

    def test_what_attachd_reads_is_checked_and_named(self):
        cases = {
            "connector. .*'host' is a required .*attachment.connector": {"ip": "1"},
            "attribute host. .*in attachment.connector.host": {"host": ""},
            "connector.host": {"host": None},
            "host. .*without control characters": {"host": "a\nb"},
            "mountpoint. .*without control": {"host": "h", "mountpoint": "\x01"},
            "attribute host. ": {"host": "x" * 256},
            "connector.mountpoint": {"host": "h", "mountpoint": 7},
            "connector.mode": {"host": "h", "mode": "wr"},
        }
        for message, connector in cases.items():
            with self.subTest(connector), self.assertRaisesRegex(exception.InvalidInput, message):
                schema.check_connector(connector)

    def test_its_size_has_a_limit_which_is_named(self):
        schema.check_connector({"host": "h", "x": "y" * 1005})
        with self.assertRaisesRegex(exception.TooLarge, "connector .* 1024 bytes"):
            schema.check_connector({"host": "h", "x": "y" * 1006})
