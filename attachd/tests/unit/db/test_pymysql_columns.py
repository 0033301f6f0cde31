# SPDX-License-Identifier: Apache-2.0
"""Pins what pymysql_columns.py knows of PyMySQL; on a real MariaDB see functional tests."""

import inspect
import struct
import unittest

from pymysql import connections, protocol
from pymysql.constants import FIELD_TYPE

from attachd.db import pymysql_columns

ENCODING = "utf8"


def description(name, length=144):
    """Write a column definition as the protocol has it: lengths before strings, then numbers."""
    texts = [b"def", b"attachd", b"volumes", b"volumes", name, name]
    numbers = struct.pack("<HIBHB2x", 45, length, FIELD_TYPE.VAR_STRING, 0, 0)
    strings = b"".join(bytes([len(text)]) + text for text in texts)
    return strings + bytes([len(numbers)]) + numbers


class RememberTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        pymysql_columns.remember()
        self.read = connections.FieldDescriptorPacket

    def test_a_column_is_read_as_pymysql_reads_it(self):
        data = description(b"status")
        stock = protocol.FieldDescriptorPacket(data, ENCODING)
        self.assertEqual("status", stock.name)
        self.assertEqual(stock.description(), self.read(data, ENCODING).description())
        self.assertEqual(stock.type_code, self.read(data, ENCODING).type_code)

    def test_the_same_column_is_read_once(self):
        self.assertIs(
            self.read(description(b"once"), ENCODING), self.read(description(b"once"), ENCODING)
        )

    def test_another_column_is_another_one(self):
        for other in (description(b"b"), description(b"a", length=3)):
            self.assertNotEqual(
                self.read(description(b"a"), ENCODING).description(),
                self.read(other, ENCODING).description(),
            )

    def test_to_remember_twice_is_the_same_as_once(self):
        pymysql_columns.remember()
        self.assertIs(self.read, connections.FieldDescriptorPacket)

    def test_pymysql_reads_columns_by_that_name_and_changes_nothing_of_them(self):
        source = inspect.getsource(connections.MySQLResult._get_descriptions)
        self.assertIn("._read_packet(FieldDescriptorPacket)", source)
        self.assertNotIn("field.name =", source)
