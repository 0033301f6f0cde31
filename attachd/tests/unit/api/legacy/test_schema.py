# SPDX-License-Identifier: Apache-2.0
"""Tests of the schemas of the actions that attach volumes."""

import unittest

from attachd import exception
from attachd.api.legacy import schema
from attachd.api.validation import Validator

SERVER = "abcdefab-cdef-4abc-8def-abcdefabcdef"


class SchemaTest(unittest.TestCase):
    def passes(self, body_schema, *bodies):
        for body in bodies:
            Validator(body_schema).check(body)

    def fails(self, body_schema, says, *bodies):
        for body in bodies:
            with self.subTest(body), self.assertRaisesRegex(exception.BadRequest, says):
                Validator(body_schema).check(body)

    def test_attach_needs_server_or_host(self):
        self.passes(
            schema.ATTACH,
            {"mountpoint": "m", "instance_uuid": SERVER},
            {"mountpoint": "m", "host_name": "h", "mode": "ro"},
        )
        self.fails(schema.ATTACH, "an instance_uuid or a host_name", {"mountpoint": "m"})
        self.fails(schema.ATTACH, "mountpoint", {"host_name": "h"}, {"host_name": "h"} | {
            "mountpoint": ""})  # fmt: skip

    def test_detach_may_name_attachment(self):
        self.passes(schema.DETACH, None, {}, {"attachment_id": None}, {"attachment_id": SERVER})
        self.fails(schema.DETACH, "attachment_id", {"attachment_id": "x"}, {"attachment_id": 1})
        self.passes(schema.FORCE_DETACH, {}, {"connector": None, "attachment_id": "x"})

    def test_ids_are_canonicalised(self):
        for written in (SERVER.upper(), SERVER.replace("-", "")):
            self.assertEqual(SERVER, schema.instance_id({"instance_uuid": written}))
            self.assertEqual(SERVER, schema.attachment_id({"attachment_id": written}))
        self.assertEqual("x", schema.attachment_id({"attachment_id": "x"}))
        self.assertIsNone(schema.instance_id({"host_name": "h"}))
        for body in (None, {}, {"attachment_id": None}, {"attachment_id": ""}):
            self.assertIsNone(schema.attachment_id(body))

    def test_connector_is_checked(self):
        self.passes(schema.INITIALIZE, {"connector": {"host": "h"}})
        self.fails(schema.INITIALIZE, "connector", {}, {"connector": None}, {"connector": "h"})
        self.fails(schema.INITIALIZE, "connector", {"connector": {}})
        self.passes(schema.TERMINATE, {"connector": None}, {"connector": {}})
        self.fails(schema.TERMINATE, "connector", {}, {"connector": "h"})
