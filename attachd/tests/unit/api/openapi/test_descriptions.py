# SPDX-License-Identifier: Apache-2.0
"""Tests of descriptions of endpoints."""

import unittest

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.openapi import descriptions
from attachd.tests.unit.api import register


class DescriptionTest(register.Case):
    def test_description_has_docstring_and_versions(self):
        @endpoint.endpoint(
            "GET", "/snacks", since=mv.ETAGS, until=mv.NEW_ATTACH, attachd_since=mv.ATTACHD_1_0
        )
        def show():
            """Answer ``all``
            of them.

            What is left
            of them.

            :raises NotFound: there are none
            """

        result = descriptions.describe(endpoint.REGISTER[0])
        self.assertEqual("Answer ``all`` of them.", result.summary)
        self.assertEqual("What is left of them.", result.text.split("\n\n")[0])
        self.assertIn("Since 3.15. Until 3.27. Under `attachd 1.0`", result.text)
        self.assertNotIn("NotFound", result.text)


class RulesTest(unittest.TestCase):
    def test_description_has_rules(self):
        (create,) = (
            api_endpoint
            for api_endpoint in endpoint.load()
            if api_endpoint.operation == "POST /attachments"
        )
        self.assertIn(
            "By the rule `volume:attachment_create`: Reserve", descriptions.describe(create).text
        )

    def test_path_variable_has_description(self):
        self.assertEqual("The id of the qos specs.", descriptions.of_variable("qos_specs_id"))
        self.assertEqual("The host.", descriptions.of_variable("host"))
