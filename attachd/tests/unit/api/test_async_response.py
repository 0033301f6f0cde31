# SPDX-License-Identifier: Apache-2.0
"""Tests of the preference for an asynchronous response (RFC 7240)."""

import unittest
from unittest import mock

import webob

from attachd.api import async_response


def asked(value):
    request = webob.Request.blank("/")
    if value is not None:
        request.headers["Prefer"] = value
    return async_response.requested(request, webob.Response(), mock.Mock())


class AsyncPreferenceTest(unittest.TestCase):
    def test_preference_is_found_among_others(self):
        for value in (
            "respond-async",
            "RESPOND-ASYNC",
            "respond-async; x",
            "respond-async=1",
            "wait=3,respond-async",
            'x="a, b" , respond-async',
            ", ,respond-async,,",
        ):
            with self.subTest(value):
                self.assertIsNotNone(asked(value))

    def test_other_preferences_are_ignored(self):
        for value in (
            *(None, "", ",", "wait=respond-async", 'x="respond-async"', 'x=", respond-async"'),
            *("respond-async-later", "return=minimal; respond-async", '"', "\\", "=,;", "\xe4"),
            *('x="' + "y" * 5000, "," * 5000),
        ):
            with self.subTest(value):
                self.assertIsNone(asked(value))

    def test_accept_answers_202_with_location(self):
        response, links = webob.Response(), mock.Mock()
        links.of.return_value = [{"rel": "self", "href": "http://api/v3/attachments/a1"}]
        async_response.AsyncPreference(response, links).accept("attachments", "a1")
        links.of.assert_called_once_with("attachments", "a1")
        self.assertEqual(202, response.status_int)
        self.assertEqual("respond-async", response.headers["Preference-Applied"])
        self.assertEqual("http://api/v3/attachments/a1", response.headers["Location"])
