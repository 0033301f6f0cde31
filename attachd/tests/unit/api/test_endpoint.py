# SPDX-License-Identifier: Apache-2.0
"""Tests of the declaration, selection and call of endpoints."""

import json
import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture

V = mv.Version


def call(body=None, version=mv.LATEST, query="", **variables):
    request = webob.Request.blank(f"/x?{query}", method="POST")
    if body is not None:
        request.body = json.dumps(body).encode()
        request.content_type = "application/json"
    return endpoint.Call(
        request=request,
        response=webob.Response(),
        ctx=mock.Mock(attachd_version=None),
        links=mock.Mock(),
        version=version,
        variables=variables,
    )


class Case(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        endpoint.load()  # What is first imported by a test would be declared for it alone.
        self.enterContext(mock.patch.object(endpoint, "REGISTER", []))

    def declare(self, handler, path="/snacks/{snack_id}", **more):
        endpoint.endpoint("POST", path, **more)(handler)
        return endpoint.REGISTER[-1]

    def declare_action(self, handler, name="os-eat", **more):
        endpoint.action("/snacks/{snack_id}/action", name, **more)(handler)
        return endpoint.REGISTER[-1]


class DeclareTest(Case):
    def test_handler_stays_callable(self):
        def show():
            return 1

        self.assertIs(show, endpoint.endpoint("GET", "/snacks")(show))
        self.assertEqual(1, show())

    def test_operation_is_named_as_in_policy(self):
        self.assertEqual("POST /snacks/{snack_id}", self.declare(lambda: None).operation)
        self.assertEqual(
            "POST /snacks/{snack_id}/action (os-eat)", self.declare_action(lambda: None).operation
        )

    def test_handler_with_unknown_argument_is_rejected(self):
        with self.assertRaisesRegex(TypeError, "colour"):
            self.declare(lambda snack_id, colour: None)

    def test_all_nouns_can_be_loaded(self):
        endpoint.load()  # raises where it cannot


class DocumentationTest(Case):
    def test_doc_may_be_unhashable(self):
        declared = self.declare(lambda: None, doc=endpoint.EndpointDoc({"snack": str}))
        self.assertEqual({declared}, {declared})


class ChooseTest(Case):
    def test_ext_endpoint_needs_opt_in(self):
        attachd_version = self.declare(lambda: "attachd_version", attachd_since=mv.ATTACHD_1_0)
        asking = call()
        with self.assertRaises(exception.VersionNotFound):
            endpoint.select([attachd_version], asking)
        asking.ctx.attachd_version = mv.ATTACHD_1_0
        self.assertIs(attachd_version, endpoint.select([attachd_version], asking))

    def test_microversion_selects_endpoint(self):
        old = self.declare(lambda: "old", until=V(3, 9))
        new = self.declare(lambda: "new", since=V(3, 10), until=V(3, 20))
        self.assertIs(old, endpoint.select([old, new], call(version=V(3, 9))))
        self.assertIs(new, endpoint.select([old, new], call(version=V(3, 10))))
        with self.assertRaisesRegex(exception.VersionNotFound, "3.21"):
            endpoint.select([old, new], call(version=V(3, 21)))

    def test_body_selects_action(self):
        eat = self.declare_action(lambda: None)
        throw = self.declare_action(lambda: None, name="os-throw")
        asked = call({"os-throw": {"far": True}})
        self.assertIs(throw, endpoint.select([eat, throw], asked))
        self.assertEqual({"far": True}, asked.body)

    def test_body_without_known_action_returns_400(self):
        eat = self.declare_action(lambda: None)
        for body in ({}, [], None, "os-eat", {"os-eat": 1, "os-throw": 2}):
            with (
                self.subTest(body),
                self.assertRaisesRegex(exception.BadRequest, "an object of one key|no body"),
            ):
                endpoint.select([eat], call(body))
        with self.assertRaisesRegex(exception.BadRequest, "There is no such action: os-cook"):
            endpoint.select([eat], call({"os-cook": None}))

    def test_body_is_read_only_if_declared(self):
        asked = call({"x": 1})
        endpoint.select([self.declare(lambda: None)], asked)
        self.assertIsNone(asked.body)


class AnswerTest(Case):
    def test_handler_gets_arguments_that_it_names(self):
        def handler(snack_id, ctx, body, query, version, links, request, response):
            return locals()

        doc = endpoint.EndpointDoc(parameters={"a": {}})
        chosen = self.declare(handler, body={"type": "object"}, doc=doc)
        asked = call({"x": 1}, query="a=b", snack_id="s1")
        endpoint.select([chosen], asked)
        expected = {
            "snack_id": "s1",
            "ctx": asked.ctx,
            "body": {"x": 1},
            "query": {"a": "b"},
            "version": mv.LATEST,
            "links": asked.links,
            "request": asked.request,
            "response": asked.response,
        }
        self.assertEqual(expected, endpoint.call_handler(chosen, asked))

    def test_body_is_checked_by_schema_of_version(self):
        steps = [(V(3, 1), {"required": ["a"]}), (V(3, 5), {"required": ["b"]})]
        chosen = self.declare(lambda body: body, since=V(3, 1), body=steps)
        for version, body, missing in ((V(3, 4), {}, "a"), (V(3, 5), {"a": 1}, "b")):
            asked = call(body, version=version)
            endpoint.select([chosen], asked)
            with self.assertRaisesRegex(exception.BadRequest, f"'{missing}' is a required"):
                endpoint.call_handler(chosen, asked)

    def test_unknown_parameters_of_writing_call_are_refused_with_known_ones(self):
        doc = endpoint.EndpointDoc(
            parameters={"all": {}, "raw": {}}, ext_parameters=frozenset({"raw"})
        )
        chosen = self.declare(lambda: 1, doc=doc)
        self.assertEqual(1, endpoint.call_handler(chosen, call(query="all=b")))
        for query, says in (
            ("all=1&some=2&a+b", "'some', 'a b'. POST /snacks/.* has all, raw .attachd 1.0."),
            ("raw=1", "raw need the header OpenStack-API-Version: volume 3.71, attachd 1.0"),
        ):
            with self.assertRaisesRegex(exception.BadRequest, says):
                endpoint.call_handler(chosen, call(query=query))
        asked = call(query="raw=1")
        asked.ctx.attachd_version = mv.ATTACHD_1_0
        self.assertEqual(1, endpoint.call_handler(chosen, asked))

    def test_unknown_parameters_of_reading_call_are_ignored(self):
        endpoint.endpoint("GET", "/snacks")(lambda: 1)
        self.assertEqual(1, endpoint.call_handler(endpoint.REGISTER[-1], call(query="a=%00")))

    def test_error_of_action_body_begins_with_its_name(self):
        chosen = self.declare_action(lambda: None, body={"type": "object"})
        asked = call({"os-eat": 7})
        endpoint.select([chosen], asked)
        with self.assertRaisesRegex(exception.InvalidInput, "attribute os-eat. Value: 7"):
            endpoint.call_handler(chosen, asked)

    def test_policy_is_checked_after_schema_and_before_handler(self):
        called = mock.Mock()

        def handler():
            called()

        chosen = self.declare(handler, policy="snack:eat", body={"type": "object"})
        asked = call({})
        asked.ctx.authorize.side_effect = exception.Forbidden(action="snack:eat")
        endpoint.select([chosen], asked)
        with self.assertRaises(exception.Forbidden):
            endpoint.call_handler(chosen, asked)
        called.assert_not_called()
        asked.ctx.authorize.assert_called_once_with("snack:eat")
        wrong = call([])
        endpoint.select([chosen], wrong)
        with self.assertRaises(exception.BadRequest):
            endpoint.call_handler(chosen, wrong)
        wrong.ctx.authorize.assert_not_called()


class LinksTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(CONF.clear_override, "public_endpoint", group="api")
        self.request = webob.Request.blank("/v3/x", base_url="http://h:8776/volume")

    def test_links_have_url_of_request(self):
        made = endpoint.Links(self.request, "p1").build("volumes", "v1")
        self.assertEqual(
            [
                {"rel": "self", "href": "http://h:8776/volume/v3/p1/volumes/v1"},
                {"rel": "bookmark", "href": "http://h:8776/volume/p1/volumes/v1"},
            ],
            made,
        )

    def test_links_have_no_project_if_request_had_none(self):
        made = endpoint.Links(self.request, None).build("volumes", "v1")
        self.assertEqual("http://h:8776/volume/v3/volumes/v1", made[0]["href"])

    def test_links_have_public_endpoint_if_configured(self):
        for given in ("https://cloud/vol", "https://cloud/vol/", "https://cloud/vol/v3/"):
            with self.subTest(given):
                CONF.set_override("public_endpoint", given, group="api")
                self.assertEqual("https://cloud/vol", endpoint.root_url(self.request))

    def test_next_link_has_marker_and_same_filters(self):
        query = {"status": "in use", "limit": "2", "marker": "old", "offset": "4"}
        (link,) = endpoint.Links(self.request, "p1").next("/volumes", query, "v9")
        self.assertEqual(
            "http://h:8776/volume/v3/p1/volumes?status=in+use&limit=2&marker=v9", link["href"]
        )


def asked(value):
    request = webob.Request.blank("/")
    if value is not None:
        request.headers["Prefer"] = value
    return endpoint.async_preference(request, webob.Response(), mock.Mock())


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
        links.build.return_value = [{"rel": "self", "href": "http://api/v3/attachments/a1"}]
        endpoint.AsyncPreference(response, links).accept("attachments", "a1")
        links.build.assert_called_once_with("attachments", "a1")
        self.assertEqual(202, response.status_int)
        self.assertEqual("respond-async", response.headers["Preference-Applied"])
        self.assertEqual("http://api/v3/attachments/a1", response.headers["Location"])
