# SPDX-License-Identifier: Apache-2.0
"""Tests of schemas made of types."""

import datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict
import unittest

from attachd.api import microversions as mv
from attachd.api.openapi.type_schemas import TypeSchemas


class Crumb(TypedDict):
    """A part of a snack.

    :ivar taste: how it
        tastes
    """

    taste: str


class Snack(Crumb):
    """Something to eat.

    :ivar eaten: when it was
    """

    eaten: datetime.datetime | None
    left: list[Crumb]
    more: NotRequired["list[Snack]"]
    group: Annotated[None, mv.GROUP_VOLUME]
    count: NotRequired[Annotated[int, mv.ATTACHD_1_0]]


class TypeSchemasTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.shapes = TypeSchemas(mv.LATEST)

    def test_plain_types_have_schemas(self):
        for hint, schema in (
            (str, {"type": "string"}),
            (None, {"type": "null"}),
            (Any, {}),
            (str | None, {"type": ["string", "null"]}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
            (dict[str, Any], {"type": "object", "additionalProperties": True}),
            (Literal["up", "down"], {"enum": ["up", "down"]}),
        ):
            with self.subTest(hint):
                self.assertEqual(schema, self.shapes.get(hint))

    def test_unsupported_type_raises(self):
        with self.assertRaisesRegex(TypeError, "set"):
            self.shapes.get(set[str])

    def test_mapping_becomes_object(self):
        schema = self.shapes.get({"snack": str, "count": NotRequired[int]})
        self.assertEqual(["snack"], schema["required"])
        self.assertEqual({"type": "integer"}, schema["properties"]["count"])
        self.assertIs(False, schema["additionalProperties"])

    def test_typed_dict_becomes_component_with_docstring(self):
        name = f"{__name__.split('.')[2]}.Snack"
        self.assertEqual({"$ref": f"#/components/schemas/{name}"}, self.shapes.get(Snack))
        snack = self.shapes.components[name]
        self.assertEqual("Something to eat.", snack["description"])
        self.assertEqual("how it tastes", snack["properties"]["taste"]["description"])
        self.assertEqual("when it was", snack["properties"]["eaten"]["description"])
        self.assertEqual("attachd 1.0.", snack["properties"]["count"]["description"])
        self.assertEqual(["taste", "eaten", "left", "group"], snack["required"])

    def test_field_exists_since_its_microversion(self):
        shapes = TypeSchemas(mv.BASE)
        shapes.get(Snack)
        (snack,) = (
            component for name, component in shapes.components.items() if name.endswith(".Snack")
        )
        self.assertNotIn("group", snack["properties"])
        self.assertIn("count", snack["properties"])
