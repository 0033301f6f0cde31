# SPDX-License-Identifier: Apache-2.0
"""Tests of the WSGI application and its route table."""

import dataclasses
import inspect
import unittest
from unittest import mock

import webob

from attachd import exception
from attachd.api import app, endpoint
from attachd.api import microversions as mv
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.tests.fixtures import conf_fixture, databases, wsgi_api
from attachd.tests.unit.api import register

PROJECT = r"[0-9a-f\-]+"


class Case(register.Case):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        conf_fixture.override(self, "auth_strategy", "noauth", group="api")

    def request(self, *args, **more):
        return wsgi_api.WsgiApi(None, app.make_app()).request(*args, **more)


class MiddlewareTest(Case):
    def test_health_check_needs_neither_version_nor_token(self):
        databases.use(self)
        answer = self.request("GET", "//healthcheck", version="nonsense", token=":")
        self.assertEqual(200, answer.status)
        self.assertIn("x-openstack-request-id", answer.headers)

    def test_proxy_headers_are_used_only_if_configured(self):
        forwarded = {"x_forwarded_proto": "https", "x_forwarded_host": "cloud"}
        answer = self.request("GET", "", **forwarded)
        self.assertEqual("http://api.example:8776/v3/", answer.headers["location"])
        CONF.set_override("enable_proxy_headers_parsing", True, group="oslo_middleware")
        self.addCleanup(
            CONF.clear_override, "enable_proxy_headers_parsing", group="oslo_middleware"
        )
        answer = self.request("GET", "", **forwarded)
        self.assertEqual("https://cloud/v3/", answer.headers["location"])

    def test_url_that_is_not_utf_8_returns_400(self):
        for path in ("/%ff", "//%c3", "/%ed%a0%80/x"):
            with self.subTest(path):
                answer = self.request("GET", path)
                self.assertEqual(400, answer.status)
                self.assertEqual(400, answer.body["badRequest"]["code"])

    def test_failure_of_middleware_is_answered_with_fault(self):
        def broken(environ, start_response):
            raise KeyError("inside")

        with self.assertLogs("attachd.api.errors", "ERROR"):
            answer = wsgi_api.WsgiApi(None, app.FaultMiddleware(broken)).request("GET", "/")
        self.assertEqual(500, answer.status)
        self.assertEqual("application/json", answer.headers["content-type"])

    def test_only_valid_request_id_becomes_global_request_id(self):
        seen = []

        def inner(environ, start_response):
            seen.append(environ.get("openstack.global_request_id"))
            start_response("200 OK", [])
            return []

        theirs = "req-11111111-2222-3333-4444-555555555555"
        for given in (theirs, "x" * 1000):
            wsgi_api.WsgiApi(None, app.FaultMiddleware(inner)).request(
                "GET", "/", x_openstack_request_id=given
            )
        self.assertEqual([theirs, None], seen)


class DispatcherTest(Case):
    def test_request_inspects_no_signature(self):
        api = wsgi_api.WsgiApi(None, app.make_app())
        with mock.patch.object(inspect, "getfullargspec") as inspected:
            api.request("GET", "//")
        inspected.assert_not_called()

    def test_pecan_reads_neither_body_nor_parameters(self):
        for method in ("GET", "POST"):
            with self.subTest(method):
                source = mock.Mock(read=mock.Mock(side_effect=AssertionError("was read")))
                environ = wsgi_api.WsgiApi._environ(method, "/nothing?a=%ff", b"{}")
                answer = wsgi_api.WsgiApi(None, app.make_app()).send(
                    environ | {"wsgi.input": source}
                )
                self.assertEqual(404, answer.status)

    def test_stream_is_not_read_before_it_is_sent(self):
        read = []

        class Stream:
            def __iter__(self):
                read.append("begin")
                yield b"data"

        response = webob.Response(content_type="text/event-stream", app_iter=Stream())
        with mock.patch.object(app.Root, "dispatch", return_value=response):
            environ = webob.Request.blank("/v3/events").environ
            body = app.Dispatcher(app.Root(mock.Mock()))(environ, lambda *_: None)
        self.assertEqual([], read)
        self.assertEqual([b"data"], list(body))


class RouteTableTest(register.Case):
    def setUp(self):
        super().setUp()
        for method, path in (
            ("GET", "/snacks"),
            ("POST", "/snacks"),
            ("GET", "/snacks/detail"),
            ("GET", "/snacks/{snack_id}"),
            ("GET", "/snacks/{snack_id}/crumbs/{key}"),
        ):
            endpoint.endpoint(method, path)(lambda: None)
        self.table = app.RouteTable(endpoint.REGISTER, PROJECT)

    def find(self, url, method="GET"):
        found = self.table.find(method, url.split("/")[1:])
        return found and (found.candidates[0].path, found.url_project, found.values)

    def test_urls_match_endpoints(self):
        cases = {
            "/snacks": ("/snacks", None, ()),
            "/abc-1/snacks": ("/snacks", "abc-1", ()),
            "/snacks/s1": ("/snacks/{snack_id}", None, ("s1",)),
            "/abc/snacks/snacks": ("/snacks/{snack_id}", "abc", ("snacks",)),
            "/snacks/detail": ("/snacks/detail", None, ()),
            "/snacks/s1/crumbs/k 1": ("/snacks/{snack_id}/crumbs/{key}", None, ("s1", "k 1")),
        }
        for url, expected in cases.items():
            with self.subTest(url):
                self.assertEqual(expected, self.find(url))

    def test_unknown_urls_match_nothing(self):
        for url in (
            "/", "/abc", "/demo/snacks", "/abc/abc/snacks", "/snacks//", "/snacks//crumbs/k",
            "/snacks/", "/abc-1/snacks/", "/snacks/s1/crumbs", "/snacks/s1/crumbs/",
            "/Snacks", "//snacks", f"/{'a' * 65}/snacks",
        ):  # fmt: skip
            with self.subTest(url):
                self.assertIsNone(self.find(url))

    def test_unknown_method_matches_nothing(self):
        self.assertIsNone(self.find("/snacks", "DELETE"))
        self.assertIsNotNone(self.find("/snacks", "POST"))

    def test_list_methods_returns_those_of_url(self):
        self.assertIn("POST", self.table.list_methods(["snacks"]))
        self.assertNotIn("DELETE", self.table.list_methods(["abc", "snacks"]))
        self.assertEqual([], self.table.list_methods(["Snacks"]))


class UnsupportedTest(RouteTableTest):
    """The route table with an unsupported resource."""

    def setUp(self):
        super().setUp()
        nothing = endpoint.Endpoint(
            "*", "/nuts", mv.MINIMUM, mv.LATEST, None, None, None, 404, lambda: None, ()
        )
        all_nuts = dataclasses.replace(nothing, method="GET", path="/nuts/detail")
        self.table = app.RouteTable([*endpoint.REGISTER, all_nuts], PROJECT, [nothing])

    def test_unsupported_resource_matches_all_urls_below_it(self):
        for url in ("/nuts", "/nuts/", "/nuts/n1", "/nuts/n1/action", "/nuts/\x00/a/b/c"):
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "X"):
                with self.subTest(url, method=method):
                    self.assertEqual(("/nuts", None, ()), self.find(url, method))
                    self.assertEqual(("/nuts", "abc", ()), self.find(f"/abc{url}", method))

    def test_endpoint_below_unsupported_resource_precedes_it(self):
        self.assertEqual(("/nuts/detail", None, ()), self.find("/nuts/detail"))
        for url, method in (("/nuts/detail", "POST"), ("/nuts/detail/x", "GET")):
            self.assertEqual(("/nuts", None, ()), self.find(url, method))

    def test_unsupported_resource_has_only_methods_of_endpoints_below_it(self):
        self.assertEqual([], self.table.list_methods(["nuts"]))
        self.assertEqual(["GET"], self.table.list_methods(["nuts", "detail"]))

    def test_unsupported_resource_matches_nothing_else(self):
        for url in ("/nut", "/nutshell", "/snacks/s1/nuts", "/abc/abc/nuts"):
            with self.subTest(url):
                self.assertIsNone(self.find(url))


def identify(environ, url_project):
    if environ.get("HTTP_X_AUTH_TOKEN") == "invalid":
        raise exception.Unauthorized(reason="who?")
    return RequestContext(project_id=url_project, request_id=environ["openstack.request_id"])


class DispatchCase(register.Case):
    """An API of one noun, without database and manager."""

    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        conf_fixture.override(self, "auth_strategy", "noauth", group="api")
        self.serve()
        self.result = {"snack": 1}

        @endpoint.endpoint("GET", "/snacks/{snack_id}", since=mv.NEW_ATTACH)
        def show(ctx, snack_id):
            if isinstance(self.result, Exception):
                raise self.result
            return self.result

        @endpoint.endpoint("DELETE", "/snacks/{snack_id}", status=202)
        def delete():
            return None

    def serve(self):
        self.enterContext(unittest.mock.patch("attachd.api.noauth.identify", identify))

    def request(self, *args, **more):
        api = wsgi_api.WsgiApi(None, app.make_app())
        return api.request(*args, **more)


class HeadersTest(DispatchCase):
    def test_response_has_version_and_request_id(self):
        answer = self.request("GET", "/snacks/s1", version="volume latest")
        self.assertEqual(200, answer.status)
        self.assertEqual({"snack": 1}, answer.body)
        self.assertEqual("application/json", answer.headers["content-type"])
        self.assertEqual("volume 3.71", answer.headers["openstack-api-version"])
        self.assertEqual("OpenStack-API-Version", answer.headers["vary"])
        self.assertRegex(answer.headers["x-openstack-request-id"], "^req-[0-9a-f-]{36}$")
        self.assertEqual(
            answer.headers["x-openstack-request-id"], answer.headers["x-compute-request-id"]
        )

    def test_error_has_version_and_request_id(self):
        self.result = exception.Conflict(reason="no")
        answer = self.request("GET", "/snacks/s1", version="volume 3.27")
        self.assertEqual(409, answer.status)
        self.assertEqual("volume 3.27", answer.headers["openstack-api-version"])
        self.assertIn("x-compute-request-id", answer.headers)

    def test_inbound_request_id_is_not_returned(self):
        theirs = "req-11111111-2222-3333-4444-555555555555"
        answer = self.request("GET", "/snacks/s1", x_openstack_request_id=theirs)
        self.assertNotEqual(theirs, answer.headers["x-openstack-request-id"])

    def test_too_new_version_is_returned_in_error(self):
        answer = self.request("GET", "/snacks/s1", version="volume 3.72")
        self.assertEqual(406, answer.status)
        self.assertEqual("volume 3.72", answer.headers["openstack-api-version"])
        self.assertEqual(406, answer.body["computeFault"]["code"])

    def test_version_before_3_is_not_returned(self):
        answer = self.request("GET", "/snacks/s1", version="volume 2.0")
        self.assertEqual(406, answer.status)
        self.assertNotIn("openstack-api-version", answer.headers)

    def test_missing_version_means_oldest(self):
        answer = self.request("GET", "/snacks/s1", version=None)
        self.assertEqual(404, answer.status)
        self.assertIn("itemNotFound", answer.body)
        self.assertEqual("volume 3.0", answer.headers["openstack-api-version"])

    def test_attachd_version_is_returned_if_requested(self):
        answer = self.request("GET", "/snacks/s1", version="volume 3.71, attachd 1.0")
        self.assertEqual("volume 3.71, attachd 1.0", answer.headers["openstack-api-version"])

    def test_unauthorized_has_no_compute_request_id(self):
        answer = self.request("GET", "/snacks/s1", token="invalid")
        self.assertEqual(401, answer.status)
        self.assertNotIn("x-compute-request-id", answer.headers)

    def test_empty_response_has_no_body(self):
        answer = self.request("DELETE", "/snacks/s1")
        self.assertEqual((202, b""), (answer.status, answer.raw))

    def test_unexpected_error_returns_500(self):
        self.result = KeyError("secret")
        with self.assertLogs("attachd.api.errors", "ERROR"):
            answer = self.request("GET", "/snacks/s1")
        self.assertEqual(500, answer.status)
        self.assertIn(answer.headers["x-openstack-request-id"], answer.fault)

    def test_response_that_is_not_json_returns_500(self):
        self.result = {"snack": object()}
        with self.assertLogs("attachd.api.errors", "ERROR"):
            self.assertEqual(500, self.request("GET", "/snacks/s1").status)


class UnroutedTest(DispatchCase):
    def test_unknown_url_returns_404_in_accepted_format(self):
        for path in ("/nothing", "/demo/snacks/s1", "//v2/snacks/s1", "//favicon.ico", "/snacks"):
            with self.subTest(path):
                answer = self.request("GET", path)
                self.assertEqual(404, answer.status)
                self.assertEqual({"message", "code", "title"}, set(answer.body))
                self.assertEqual("404 Not Found", answer.body["code"])
                self.assertNotIn("x-compute-request-id", answer.headers)
        answer = self.request("GET", "/nothing", accept="text/html")
        self.assertIn("text/html", answer.headers["content-type"])

    def test_wrong_method_returns_404(self):
        self.assertEqual(
            {"message", "code", "title"}, set(self.request("PATCH", "/snacks/s1").body)
        )


class VersionsTest(DispatchCase):
    def test_root_lists_versions(self):
        answer = self.request("GET", "//", version=None)
        self.assertEqual(300, answer.status)
        (document,) = answer.body["versions"]
        self.assertEqual(
            ("v3.0", "CURRENT", "3.0", "3.71"),
            tuple(document[key] for key in ("id", "status", "min_version", "version")),
        )
        links = {link["rel"]: link["href"] for link in document["links"]}
        self.assertEqual("http://api.example:8776/v3/", links["self"])

    def test_version_url_shows_same_document(self):
        answer = self.request("GET", "/", version=None)
        self.assertEqual(200, answer.status)
        self.assertEqual(self.request("GET", "//").body, answer.body)

    def test_version_url_without_slash_redirects(self):
        answer = self.request("GET", "", version=None)
        self.assertEqual(302, answer.status)
        self.assertEqual("http://api.example:8776/v3/", answer.headers["location"])

    def test_version_links_have_public_endpoint(self):
        CONF.set_override("public_endpoint", "https://cloud/volume", group="api")
        self.addCleanup(CONF.clear_override, "public_endpoint", group="api")
        self.assertEqual("https://cloud/volume/v3/", self.request("GET", "").headers["location"])

    def test_empty_path_is_root(self):
        environ = wsgi_api.WsgiApi._environ("GET", "", b"")
        self.assertEqual(300, wsgi_api.WsgiApi(None, app.make_app()).send(environ).status)

    def test_version_documents_are_read_only(self):
        for path in ("//", "/", ""):
            for method in ("POST", "DELETE", "PUT"):
                with self.subTest(path, method=method):
                    self.assertEqual(404, self.request(method, path).status)
