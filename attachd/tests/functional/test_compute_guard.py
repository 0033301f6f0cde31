# SPDX-License-Identifier: Apache-2.0
"""Tests of deleting attachments that a server uses, with real tokens and a fake Nova."""

import unittest

from attachd.db.engine import session as db_session
from attachd.tests.fixtures import (
    conf_fixture,
    db_rows,
    fake_nova,
    keystone_api,
    wsgi_api,
)
from attachd.tests.selection import full_only

SERVER = "11111111-2222-3333-4444-555555555555"
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}
ATTACHD_1_0 = f"{wsgi_api.LATEST}, attachd 1.0"
LOGGER = "attachd.api.detach_guard"
OVERRIDES = "attachd.api.override"


@full_only("keystone")
class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = keystone_api.use(self)
        self.keystone = self.api.keystone
        self.compute = fake_nova.FakeNova(self)
        self.keystone.endpoint("compute", self.compute.url)
        self.addCleanup(self.keystone.forget_endpoint, "compute")
        self.alice = self.keystone.user("alice", "member")
        self.token = self.keystone.token(self.alice)
        self.volume = db_rows.add_volume(project_id=self.alice.project_id)["id"]

    def attach(self, **fields):
        body = {"attachment": {
            "volume_uuid": self.volume, "instance_uuid": SERVER, "connector": CONNECTOR, **fields,
        }}  # fmt: skip
        answer = self.api.request("POST", "/attachments", body, token=self.token)
        self.assertEqual(200, answer.status, answer.raw)
        identity = answer.body["attachment"]["id"]
        action = f"/attachments/{identity}/action"
        done = self.api.request("POST", action, {"os-complete": None}, token=self.token)
        self.assertEqual(204, done.status, done.raw)
        return identity

    def used(self):
        """Attach the volume to a server that has it."""
        identity = self.attach()
        self.compute.add_attachment(SERVER, self.volume, identity)
        return identity

    def delete(self, identity, query="", **more):
        options = {"token": self.token, **more}
        return self.api.request("DELETE", f"/attachments/{identity}{query}", **options)

    def assert_gone(self, answer):
        self.assertEqual(200, answer.status, answer.raw)
        self.assertEqual([], db_rows.list_attachments(self.volume))
        self.assertEqual(set(), self.api.backend.driver.granted())

    def assert_stays(self, identity, answer, status):
        self.assertEqual(status, answer.status, answer.raw)
        self.assertEqual("attached", db_rows.get_attachment(identity)["state"])
        self.assertEqual({identity}, self.api.backend.driver.granted())


class UserTest(Case):
    def test_delete_attachment_in_use_by_a_server_returns_409(self):
        identity = self.used()
        answer = self.delete(identity)
        self.assert_stays(identity, answer, 409)
        self.assertIn("conflictingRequest", answer.body)
        self.assertIn(SERVER, answer.fault)
        self.assertIn("through the Compute API", answer.fault)

    def test_delete_attachment_queries_nova_once_as_the_user(self):
        self.compute.accepts_token = self.keystone.is_valid
        self.assertEqual(409, self.delete(self.used()).status)
        ((path, headers),) = self.compute.requests
        self.assertEqual(f"/v2.1/servers/{SERVER}/os-volume_attachments/{self.volume}", path)
        self.assertEqual(self.token, headers["x-auth-token"])
        self.assertNotIn("x-service-token", headers)

    def test_delete_attachment_by_admin_queries_nova(self):
        identity = self.used()
        token = self.keystone.token(self.keystone.admin)
        self.assert_stays(identity, self.delete(identity, token=token), 409)

    def test_delete_attachment_of_server_unknown_to_nova_succeeds(self):
        identity = self.attach()
        with self.assertLogs(LOGGER, "WARNING"):
            self.assert_gone(self.delete(identity))

    def test_delete_attachment_not_used_by_its_server_succeeds(self):
        identity = self.attach()
        self.compute.add_server(SERVER)
        with self.assertLogs(LOGGER, "WARNING"):
            self.assert_gone(self.delete(identity))

    def test_delete_attachment_superseded_at_its_server_succeeds(self):
        identity = self.attach()
        self.compute.add_attachment(SERVER, self.volume, "99999999-2222-3333-4444-555555555555")
        with self.assertLogs(LOGGER, "WARNING"):
            self.assert_gone(self.delete(identity))

    def test_delete_reservation_does_not_query_nova(self):
        identity = self.api.request(
            "POST",
            "/attachments",
            {"attachment": {"volume_uuid": self.volume, "instance_uuid": SERVER}},
            token=self.token,
        ).body["attachment"]["id"]
        self.compute.add_attachment(SERVER, self.volume, identity)
        self.assert_gone(self.delete(identity))
        self.assertEqual([], self.compute.requests)

    def test_delete_attachment_without_server_does_not_query_nova(self):
        body = {"attachment": {"volume_uuid": self.volume, "connector": CONNECTOR}}
        made = self.api.request("POST", "/attachments", body, token=self.token)
        self.assert_gone(self.delete(made.body["attachment"]["id"]))
        self.assertEqual([], self.compute.requests)

    def test_delete_attachment_by_other_project_does_not_query_nova(self):
        identity = self.used()
        stranger = self.keystone.token(self.keystone.user("mallory", "member"))
        reader = self.keystone.user("rita")
        self.keystone.grant(reader, "reader", project=self.alice.project)
        self.assertEqual(404, self.delete(identity, token=stranger).status)
        self.assertEqual([], self.compute.requests)


class ServiceTest(Case):
    def test_delete_attachment_by_service_does_not_query_nova(self):
        identity = self.used()
        nova = self.keystone.token(self.keystone.user("nova", "service", project="service"))
        self.assert_gone(self.delete(identity, x_service_token=nova))
        self.assertEqual([], self.compute.requests)

    def test_delete_attachment_by_service_without_role_queries_nova(self):
        identity = self.used()
        other = self.keystone.token(self.keystone.user("zaqar", "member", project="service"))
        self.assertIn(self.delete(identity, x_service_token=other).status, {401, 409})
        self.assertEqual("attached", db_rows.get_attachment(identity)["state"])

    def test_delete_attachment_with_invalid_service_token_queries_nova(self):
        identity = self.used()
        answer = self.delete(identity, x_service_roles="service")
        self.assert_stays(identity, answer, 409)

    def test_delete_attachment_by_user_with_service_role_queries_nova(self):
        identity = self.used()
        self.keystone.grant(self.alice, "service")
        answer = self.delete(identity, token=self.keystone.token(self.alice))
        self.assert_stays(identity, answer, 409)


class NobodyTest(Case):
    def test_delete_attachment_without_nova_in_catalogue_succeeds(self):
        self.keystone.forget_endpoint("compute")
        self.assert_gone(self.delete(self.used()))
        self.assertEqual([], self.compute.requests)


class TroubleTest(Case):
    def assert_unavailable(self, identity, says, **more):
        answer = self.delete(identity, **more)
        self.assert_stays(identity, answer, 503)
        self.assertIn("serviceUnavailable", answer.body)
        self.assertRegex(answer.fault, says)
        self.assertGreater(int(answer.headers["retry-after"]), 0)

    def test_delete_attachment_with_silent_nova_times_out(self):
        conf_fixture.override(self, "read_timeout", 0.5, "nova")  # it never answers
        identity = self.used()
        self.compute.stop_responding()
        self.assert_unavailable(identity, "Compute .* takes longer to answer")

    def test_delete_attachment_with_nova_down_is_refused(self):
        identity = self.used()
        self.compute.close()
        self.assert_unavailable(identity, "Compute .* cannot be reached")

    def test_delete_attachment_with_broken_nova_is_refused(self):
        identity = self.used()
        self.compute.respond_with(500)
        self.assert_unavailable(identity, "answers with status 500")

    def test_delete_attachment_with_unversioned_nova_endpoint_is_still_checked(self):
        identity = self.used()
        self.keystone.endpoint("compute", self.compute.url.removesuffix("/v2.1"))
        fresh = self.keystone.token(self.alice)
        self.assert_unavailable(identity, "not from Compute.*ends in /v2.1", token=fresh)

    def test_delete_attachment_with_token_refused_by_nova_is_refused(self):
        identity = self.used()
        self.compute.accepts_token = lambda _token: False
        self.assert_unavailable(identity, "does not accept the token")

    def test_delete_attachment_with_nova_in_other_region_is_refused(self):
        conf_fixture.override(self, "region_name", "elsewhere", "nova")
        self.assert_unavailable(self.used(), "no endpoint of it with .*region_name elsewhere")

    def test_delete_attachment_by_user_forbidden_at_nova_is_refused(self):
        identity = self.used()
        self.compute.respond_with(403)
        self.assert_stays(identity, self.delete(identity), 403)


@full_only("keystone")
class ExchangeTest(unittest.TestCase):
    def test_delete_attachment_with_token_without_catalogue_exchanges_the_token(self):
        local = keystone_api.use(self, include_service_catalog=False)
        compute = fake_nova.FakeNova(self)
        local.keystone.endpoint("compute", compute.url)
        self.addCleanup(local.keystone.forget_endpoint, "compute")
        alice = local.keystone.user("alice", "member")
        token = local.keystone.token(alice)
        volume = db_rows.add_volume(project_id=alice.project_id)["id"]
        attachment = db_rows.add_attachment(
            volume, "attached", project_id=alice.project_id, instance_uuid=SERVER
        )
        path = f"/attachments/{attachment['id']}"
        compute.add_attachment(SERVER, volume, attachment["id"])
        answer = local.request("DELETE", path, token=token)
        self.assertEqual(503, answer.status, answer.raw)
        self.assertIn("token_auth_url in [nova]", answer.fault)
        conf_fixture.override(self, "token_auth_url", local.keystone.url, "nova")
        self.assertEqual(409, local.request("DELETE", path, token=token).status)


class OverrideTest(Case):
    def setUp(self):
        super().setUp()
        self.admin = self.keystone.token(self.keystone.admin)

    def override(self, identity, reason="the%20host%20is%20gone", **more):
        options = {"token": self.admin, "version": ATTACHD_1_0, **more}
        return self.delete(identity, f"?override_reason={reason}", **options)

    def test_override_by_admin_with_reason_deletes_attachment(self):
        identity = self.used()
        with self.assertLogs(OVERRIDES, "WARNING") as logged:
            answer = self.override(identity)
        self.assert_gone(answer)
        self.assertEqual(ATTACHD_1_0, answer.headers["openstack-api-version"])
        self.assertIn("Reason: the host is gone", logged.output[0])
        self.assertIn(self.keystone.admin.id, logged.output[0])

    def test_override_does_not_query_nova(self):
        identity = self.used()
        self.compute.close()
        with self.assertLogs(OVERRIDES, "WARNING"):
            self.assert_gone(self.override(identity))

    def test_override_by_user_is_refused(self):
        identity = self.used()
        answer = self.override(identity, token=self.token)
        self.assert_stays(identity, answer, 403)
        self.assertIn("volume:attachment_delete_override", answer.fault)

    def test_override_without_microversion_is_refused(self):
        identity = self.used()
        self.assert_stays(identity, self.override(identity, version=wsgi_api.LATEST), 400)

    def test_override_without_reason_is_refused(self):
        identity = self.used()
        for reason in ("", "%20", "x" * 300, "a%00b", "%FF"):
            with self.subTest(reason):
                self.assert_stays(identity, self.override(identity, reason), 400)


class LegacyTest(Case):
    """The older calls, which name no attachment, or the only one."""

    def act(self, name, body=None, **more):
        options = {"token": self.token, **more}
        query = options.pop("query", "")
        path = f"/volumes/{self.volume}/action{query}"
        return self.api.request("POST", path, {name: body}, **options)

    def calls(self, identity):
        admin = self.keystone.token(self.keystone.admin)
        return (
            ("os-detach", {}, self.token),
            ("os-detach", {"attachment_id": identity}, self.token),
            ("os-terminate_connection", {"connector": CONNECTOR}, self.token),
            ("os-force_detach", {"attachment_id": identity, "connector": CONNECTOR}, admin),
        )

    def test_legacy_calls_on_volume_in_use_by_a_server_return_409(self):
        identity = self.used()
        for name, body, token in self.calls(identity):
            with self.subTest(name, body=body):
                self.assert_stays(identity, self.act(name, body, token=token), 409)

    def test_legacy_calls_with_silent_nova_are_refused(self):
        conf_fixture.override(self, "read_timeout", 0.3, "nova")  # it never answers
        identity = self.used()
        self.compute.stop_responding()
        for name, body, token in self.calls(identity):
            with self.subTest(name, body=body):
                self.assert_stays(identity, self.act(name, body, token=token), 503)

    def test_legacy_detach_by_service_does_not_query_nova(self):
        identity = self.used()
        nova = self.keystone.token(self.keystone.user("nova", "service", project="service"))
        answer = self.act("os-detach", {"attachment_id": identity}, x_service_token=nova)
        self.assertEqual(202, answer.status, answer.raw)
        self.assertEqual([], db_rows.list_attachments(self.volume))
        self.assertEqual([], self.compute.requests)

    def test_legacy_detach_with_override_by_admin_succeeds(self):
        identity = self.used()
        admin = self.keystone.token(self.keystone.admin)
        with self.assertLogs(OVERRIDES, "WARNING"):
            answer = self.act(
                "os-detach",
                {"attachment_id": identity},
                token=admin,
                version=ATTACHD_1_0,
                query="?override_reason=gone",
            )
        self.assertEqual(202, answer.status, answer.raw)
        self.assertEqual([], db_rows.list_attachments(self.volume))

    def test_legacy_detach_of_attachment_of_other_volume_is_refused(self):
        attachment = self.used()
        self.volume = db_rows.add_volume(project_id=self.alice.project_id)["id"]
        answer = self.act("os-detach", {"attachment_id": attachment})
        self.assertEqual(400, answer.status, answer.raw)
        self.assertIn("attachment_id", answer.fault)


class CostTest(Case):
    def count(self, identity, **more):
        before = db_session.counters().statements
        answer = self.delete(identity, **more)
        after = db_session.counters().statements
        self.assert_gone(answer)
        return after - before

    def test_nova_query_needs_no_sql_statement(self):
        self.count(self.attach())  # The process remembers for a time which agents there are.
        asked = self.count(self.attach())
        self.assertEqual(2, len(self.compute.requests))
        self.keystone.forget_endpoint("compute")
        fresh = self.keystone.token(self.alice)
        self.assertEqual(self.count(self.attach(), token=fresh), asked)
        self.assertEqual(2, len(self.compute.requests))
