# SPDX-License-Identifier: Apache-2.0
"""The size of sets is limited; functional/bad_input has the other bad requests."""

import unittest

from attachd import exception
from attachd.api.attachments import set_schema
from attachd.api.validation import Validator
from attachd.db import models


class SetSchemaTest(unittest.TestCase):
    def test_sets_have_1_to_64_members(self):
        detach = Validator(set_schema.DETACH)
        attach = Validator(set_schema.ATTACH)
        for size, is_right in ((0, False), (1, True), (64, True), (65, False)):
            ids = [models.new_id() for _ in range(size)]
            volumes = [{"volume_uuid": item} for item in ids]
            bodies = [
                (detach, {"attachments": ids}),
                (attach, {"host": "h", "volumes": volumes, "atomic": True}),
            ]
            for validator, body in bodies:
                if is_right:
                    validator.check(body, "x")
                else:
                    with self.assertRaises(exception.InvalidInput):
                        validator.check(body, "x")
