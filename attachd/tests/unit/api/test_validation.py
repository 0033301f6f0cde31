# SPDX-License-Identifier: Apache-2.0
"""Tests of schemas of fields and bodies, and of their messages."""

import unittest

from attachd import exception
from attachd.api import validation

ID = "11111111-2222-3333-4444-555555555555"
UUID = {"type": "string", "format": "uuid"}
SCHEMA = validation.wrapped(
    "thing",
    validation.fields(
        {
            "id": UUID,
            "name": {"type": ["string", "null"], "maxLength": 255},
            "mode": {"enum": ["rw", "ro"]},
            "tags": {"type": "array", "items": {"type": "integer", "minimum": 1}},
            "pairs": {"patternProperties": {"^x": {}}, "additionalProperties": False},
        },
        "id",
    ),
)


class MessagesTest(unittest.TestCase):
    def check(self, value, root=""):
        validation.Validator(SCHEMA).check(value, root)

    def test_valid_value_passes(self):
        self.check({"thing": {"id": ID, "name": None, "mode": "ro", "tags": [1]}})

    def test_message_names_field_value_and_reason(self):
        form = "Invalid input for field/attribute "
        thing = {"id": ID}
        cases = [
            ({"thing": {"id": "x"}}, f"{form}id. Value: 'x'. 'x' is not a 'uuid' (in thing.id)"),
            ({"thing": {"id": 5}}, f"{form}id. Value: 5. 5 is not of type 'string' (in thing.id)"),
            ({"thing": {}}, f"{form}thing. Value: {{}}. 'id' is a required property"),
            ({"thing": []}, f"{form}thing. Value: []. [] is not of type 'object'"),
            (
                {"thing": thing | {"mode": "xx"}},
                f"{form}mode. Value: 'xx'. 'xx' is not one of ['rw', 'ro'] (in thing.mode)",
            ),
            (
                {"thing": thing | {"tags": [1, 0]}},
                f"{form}tags. Value: 0. 0 is less than the minimum of 1 (in thing.tags.1)",
            ),
            (
                {"thing": thing | {"name": 1}},
                f"{form}name. Value: 1. 1 is not of type 'string', 'null' (in thing.name)",
            ),
            ({}, "'thing' is a required property"),
            (None, "None is not of type 'object'"),
            (
                {"thing": thing, "x\n": 1, "y": 2},
                r"Additional properties are not allowed ('x\n', 'y' were unexpected)",
            ),
        ]
        for value, expected in cases:
            with self.subTest(value), self.assertRaises(exception.BadRequest) as raised:
                self.check(value)
            self.assertEqual(expected, str(raised.exception))

    def test_pattern_error_has_description(self):
        validator = validation.Validator({"pattern": "^[0-9]+$", "description": "a number"})
        with self.assertRaisesRegex(exception.BadRequest, "^'x' is not a number$"):
            validator.check("x")

    def test_unmatched_keys_are_named(self):
        with self.assertRaisesRegex(exception.BadRequest, r"\('y' was unexpected\)"):
            self.check({"thing": {"id": ID, "pairs": {"x1": 1, "y": 2}}})

    def test_root_value_has_given_name(self):
        with self.assertRaisesRegex(exception.InvalidInput, "attribute id. .*in os-eat.thing.id"):
            self.check({"thing": {"id": "x"}}, "os-eat")
        with self.assertRaisesRegex(exception.InvalidInput, "attribute os-eat. Value: 1. "):
            self.check(1, "os-eat")

    def test_messages_are_short(self):
        huge = "ü\n" * 100_000
        for value in (
            {"thing": {"id": huge}},
            {"thing": {"id": ID, "name": huge}},
            {"thing": {"id": ID, "mode": huge}},
            {"thing": {"id": ID, huge: 1}},
            {huge: 1},
            [huge],
        ):
            with self.assertRaises(exception.BadRequest) as raised:
                self.check(value)
            self.assertLess(len(str(raised.exception)), 600)
            self.assertNotIn("\n", str(raised.exception))


class Large(list[str]):
    """An array that must not be formatted as a whole."""

    def __repr__(self):
        raise AssertionError("The whole value was formatted.")


class LargeValuesTest(unittest.TestCase):
    def refused(self, schema, value):
        with self.assertRaises(exception.BadRequest) as raised:
            validation.Validator({"properties": {"x": schema}}).check({"x": value})
        return str(raised.exception)

    def test_only_shown_part_of_refused_value_is_formatted(self):
        value = Large(["a"] * 100)
        shown = str(["a"] * 100)[: validation.MAX_SHOWN]
        for schema, reason in (
            ({"type": "string"}, "is not of type 'string'"),
            ({"enum": ["a", 1]}, "is not one of ['a', 1]"),
            ({"maxItems": 99}, "has more than 99 items"),
        ):
            with self.subTest(schema):
                self.assertIn(f"{shown}... {reason}", self.refused(schema, value))

    def test_value_within_refused_value_is_not_formatted(self):
        value = {"a": ["b" * 100, {"c": Large()}]}
        message = self.refused({"maxProperties": 0}, value)
        self.assertIn("{'a': ['bbb", message)
        self.assertIn("has more than 0 items", message)

    def test_abbreviate_of_short_value_is_its_repr(self):
        for value in (None, True, 1.5, "x'", [], {}, [1, [2, {}]], {"a": {"b": [None]}, "c": 1}):
            self.assertEqual(repr(value), validation.abbreviate(value))


class UuidTest(unittest.TestCase):
    def test_uuid_may_have_hyphens(self):
        validator = validation.Validator(UUID)
        for value in (ID, ID.upper(), ID.replace("-", "")):
            validator.check(value)
        for value in ("", "x", f"{ID}\n", f"urn:uuid:{ID}", ID[:-1], f"{{{ID}}}", "१" * 32):
            with self.subTest(value), self.assertRaises(exception.BadRequest):
                validator.check(value)


class VersionedSchemaTest(unittest.TestCase):
    def test_schema_of_requested_version_is_used(self):
        ladder = validation.VersionedSchema([(1, {"const": "old"}), (5, {"const": "new"})], 0)
        ladder.check("anything", 0)
        ladder.check("old", 4)
        ladder.check("new", 5)
        with self.assertRaises(exception.BadRequest):
            ladder.check("old", 6)

    def test_schema_of_version_can_be_looked_up(self):
        ladder = validation.VersionedSchema([(1, {"const": "old"}), (5, {"const": "new"})], 0)
        self.assertIsNone(ladder.get(0))
        self.assertEqual({"const": "old"}, ladder.get(4).schema)

    def test_single_schema_applies_since_first_version(self):
        with self.assertRaises(exception.BadRequest):
            validation.VersionedSchema({"const": 1}, 3).check(2, 3)

    def test_invalid_schema_raises(self):
        with self.assertRaises(Exception):  # noqa: B017  jsonschema's affair which one
            validation.VersionedSchema({"type": "strong"}, 0)


def accepts(schema, value):
    try:
        validation.Validator(schema).check(value)
    except exception.BadRequest:
        return False
    return True


class SchemasTest(unittest.TestCase):
    def test_size_schema(self):
        for value in (1, "1", "007", 2**31 - 1, "999999999"):
            self.assertTrue(accepts(validation.SIZE, value), value)
        for value in (0, -1, "0", "-1", "", "1.5", 1.5, "1\n", "9" * 10, 2**31, None, True, [1]):
            self.assertFalse(accepts(validation.SIZE, value), value)

    def test_boolean_schema(self):
        for value in (True, False, "True", "false", "1", "0", "yes", "off"):
            self.assertTrue(accepts(validation.BOOLEAN, value), value)
            validation.parse_bool("x", value)
        for value in ("maybe", "", None, 2, [], {}):
            self.assertFalse(accepts(validation.BOOLEAN, value), value)

    def test_metadata_schema(self):
        for value in ({}, {"a": ""}, {"a b/c:d_e.f-1": "x" * 255}, {"k" * 255: "v"}):
            self.assertTrue(accepts(validation.METADATA, value), value)
        for value in ([], {"": "v"}, {"k" * 256: "v"}, {"a\n": "v"}, {"ü": "v"}, {"a": None}):
            self.assertFalse(accepts(validation.METADATA, value), value)
        self.assertFalse(accepts(validation.METADATA, {"a": "x" * 256}))
        self.assertFalse(accepts(validation.METADATA, {str(i): "" for i in range(257)}))

    def test_blank_name_is_rejected(self):
        self.assertTrue(accepts(validation.NAME, "ä"))
        for value in ("", "  ", None, "x" * 256):
            self.assertFalse(accepts(validation.NAME, value), value)

    def test_name_with_control_character_is_rejected(self):
        for schema in (validation.NAME, validation.OPTIONAL_LINE):
            self.assertTrue(accepts(schema, " two words "))
            for value in ("a\nb", "a\n", "\x1b[2J", "a\x9bb", "a\u2028b"):
                self.assertFalse(accepts(schema, value), value)

    def test_wrapped_body_has_its_key_and_optional_keys(self):
        schema = validation.wrapped("a", {"type": "integer"}, b={"type": "null"})
        self.assertTrue(accepts(schema, {"a": 1}))
        self.assertTrue(accepts(schema, {"a": 1, "b": None}))
        for value in ({}, {"b": None}, {"a": 1, "c": 1}, {"a": "1"}, None, []):
            self.assertFalse(accepts(schema, value), value)


class CanonicalTest(unittest.TestCase):
    def test_uuid_becomes_canonical(self):
        stored = "abcdefab-cdef-4abc-8def-abcdefabcdef"
        for written in (stored, stored.upper(), stored.replace("-", ""), f"{{{stored}}}"):
            self.assertEqual(stored, validation.canonical(written))

    def test_other_text_is_unchanged(self):
        for text in ("", "x", "Compute-1", "\u0661" * 8):
            self.assertEqual(text, validation.canonical(text))


class ParseBoolTest(unittest.TestCase):
    def test_boolean_is_parsed_as_clients_write_it(self):
        for value in (True, "True", "1", "on", "YES", "t"):
            self.assertIs(True, validation.parse_bool("x", value))
        for value in (False, "False", "0", "off", "No", "f"):
            self.assertIs(False, validation.parse_bool("x", value))

    def test_invalid_boolean_names_field(self):
        with self.assertRaisesRegex(exception.InvalidInput, "attribute force.*'maybe'"):
            validation.parse_bool("force", "maybe")


class PairsTest(unittest.TestCase):
    def test_repr_of_dictionary_is_parsed(self):
        self.assertEqual(
            {"a": "b", "c": "it's"}, validation.parse_pairs("m", str({"a": "b", "c": "it's"}))
        )
        self.assertEqual({"a": "b"}, validation.parse_pairs("m", '{"a": "b"}'))

    def test_invalid_dictionary_is_rejected(self):
        nonsense = (
            *("", "a", "a=b", "{", "['a']", "{'a'}", "{'a': 1}", "{1: 'a'}", "{[]: 'a'}"),
            str({f"k{i}": "v" for i in range(33)}),
            *(r"{'a': '\x00'}", r"{'a\n': 'b'}", r"{'a': '\ud800'}"),
            *("__import__('os')", "{" * 1000, "(" * 9999, "{'a': 'b'", "1" * 9999),
        )
        for text in nonsense:
            with self.subTest(text[:20]), self.assertRaises(exception.InvalidInput):
                validation.parse_pairs("m", text)


class DocumentationTest(unittest.TestCase):
    def test_documented_flag_values_are_parsed(self):
        result = validation.query_flag("Whether.")
        self.assertEqual("Whether.", result["description"])
        for word in result["enum"]:
            self.assertIsInstance(validation.parse_bool("flag", word), bool)
