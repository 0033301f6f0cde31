# SPDX-License-Identifier: Apache-2.0
"""Tests of the schemas and parsers of single fields."""

import unittest

from attachd import exception
from attachd.api import fields, validation


def accepts(schema, value):
    try:
        validation.Validator(schema).check(value)
    except exception.BadRequest:
        return False
    return True


class SchemasTest(unittest.TestCase):
    def test_size_schema(self):
        for value in (1, "1", "007", 2**31 - 1, "999999999"):
            self.assertTrue(accepts(fields.SIZE, value), value)
        for value in (0, -1, "0", "-1", "", "1.5", 1.5, "1\n", "9" * 10, 2**31, None, True, [1]):
            self.assertFalse(accepts(fields.SIZE, value), value)

    def test_boolean_schema(self):
        for value in (True, False, "True", "false", "1", "0", "yes", "off"):
            self.assertTrue(accepts(fields.BOOLEAN, value), value)
            fields.parse_bool("x", value)
        for value in ("maybe", "", None, 2, [], {}):
            self.assertFalse(accepts(fields.BOOLEAN, value), value)

    def test_metadata_schema(self):
        for value in ({}, {"a": ""}, {"a b/c:d_e.f-1": "x" * 255}, {"k" * 255: "v"}):
            self.assertTrue(accepts(fields.METADATA, value), value)
        for value in ([], {"": "v"}, {"k" * 256: "v"}, {"a\n": "v"}, {"ü": "v"}, {"a": None}):
            self.assertFalse(accepts(fields.METADATA, value), value)
        self.assertFalse(accepts(fields.METADATA, {"a": "x" * 256}))
        self.assertFalse(accepts(fields.METADATA, {str(i): "" for i in range(257)}))

    def test_blank_name_is_rejected(self):
        self.assertTrue(accepts(fields.NAME, "ä"))
        for value in ("", "  ", None, "x" * 256):
            self.assertFalse(accepts(fields.NAME, value), value)

    def test_wrapped_body_has_its_key_and_optional_keys(self):
        schema = fields.wrapped("a", {"type": "integer"}, b={"type": "null"})
        self.assertTrue(accepts(schema, {"a": 1}))
        self.assertTrue(accepts(schema, {"a": 1, "b": None}))
        for value in ({}, {"b": None}, {"a": 1, "c": 1}, {"a": "1"}, None, []):
            self.assertFalse(accepts(schema, value), value)


class CanonicalTest(unittest.TestCase):
    def test_uuid_becomes_canonical(self):
        stored = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        for written in (stored, stored.upper(), stored.replace("-", ""), f"{{{stored}}}"):
            self.assertEqual(stored, fields.canonical(written))

    def test_other_text_is_unchanged(self):
        for text in ("", "x", "Compute-1", "\u0661" * 8):
            self.assertEqual(text, fields.canonical(text))


class ParseBoolTest(unittest.TestCase):
    def test_boolean_is_parsed_as_clients_write_it(self):
        for value in (True, "True", "1", "on", "YES", "t"):
            self.assertIs(True, fields.parse_bool("x", value))
        for value in (False, "False", "0", "off", "No", "f"):
            self.assertIs(False, fields.parse_bool("x", value))

    def test_invalid_boolean_names_field(self):
        with self.assertRaisesRegex(exception.InvalidInput, "attribute force.*'maybe'"):
            fields.parse_bool("force", "maybe")


class PairsTest(unittest.TestCase):
    def test_repr_of_dictionary_is_parsed(self):
        self.assertEqual(
            {"a": "b", "c": "it's"}, fields.parse_pairs("m", str({"a": "b", "c": "it's"}))
        )
        self.assertEqual({"a": "b"}, fields.parse_pairs("m", '{"a": "b"}'))

    def test_invalid_dictionary_is_rejected(self):
        nonsense = (
            *("", "a", "a=b", "{", "['a']", "{'a'}", "{'a': 1}", "{1: 'a'}", "{[]: 'a'}"),
            str({f"k{i}": "v" for i in range(33)}),
            *(r"{'a': '\x00'}", r"{'a\n': 'b'}", r"{'a': '\ud800'}"),
            *("__import__('os')", "{" * 1000, "(" * 9999, "{'a': 'b'", "1" * 9999),
        )
        for text in nonsense:
            with self.subTest(text[:20]), self.assertRaises(exception.InvalidInput):
                fields.parse_pairs("m", text)


class DocumentationTest(unittest.TestCase):
    def test_documented_flag_values_are_parsed(self):
        told = fields.query_flag("Whether.")
        self.assertEqual("Whether.", told["description"])
        for word in told["enum"]:
            self.assertIsInstance(fields.parse_bool("flag", word), bool)
