# SPDX-License-Identifier: Apache-2.0
"""Tests of the isolation of projects: each call of the API by a member of another project.

The calls are those behind the samples of the API reference, which are complete.
"""

import json
import unittest

from attachd.api import endpoint
from attachd.tests.fixtures import keystone_api, wsgi_api
from attachd.tests.functional.test_api_samples import STORY
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

SERVER = "11111111-2222-4333-8444-555555555555"
CONNECTOR = {"host": "compute-1", "initiator": "iqn.1994-05.com.example:compute-1"}


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = keystone_api.use(self)
        keystone = self.api.keystone
        self.alice = keystone.user("alice", "member")
        self.token = keystone.token(self.alice)
        mallory = keystone.user("mallory", "member")
        self.stranger = keystone.token(mallory)
        self.admin = keystone.token(keystone.admin)

    def request(
        self, method="GET", path="/volumes", body=None, token=None, version=wsgi_api.LATEST
    ):
        return self.api.request(method, path, body, token=token or self.token, version=version)

    def make(self, noun, path, values, token=None):
        answer = self.request("POST", path, {noun: values}, token)
        self.assertLess(answer.status, 300, answer.raw)
        return answer.body[noun]["id"]


@full_only("keystone")
class ResourcesTest(Case):
    """What alice has, and what mallory gets of it."""

    def setUp(self):
        super().setUp()
        access = {"os-volume-type-access:is_public": False}
        self.type = self.make("volume_type", "/types", {"name": "hers", **access}, self.admin)
        path = f"/types/{self.type}/action"
        granted = {"addProjectAccess": {"project": self.alice.project_id}}
        self.assertEqual(202, self.request("POST", path, granted, self.admin).status)
        wanted = {"size": 1, "name": "disk", "metadata": {"use": "data"}, "volume_type": "hers"}
        self.volume = self.make("volume", "/volumes", wanted)
        self.spare = self.make("volume", "/volumes", {"size": 1, "name": "spare"})
        for item in (self.volume, self.spare):
            self.wait_until_available(item)
        wanted = {"instance_uuid": SERVER, "connector": CONNECTOR}
        self.attachment = self.make(
            "attachment", "/attachments", {"volume_uuid": self.volume, **wanted}
        )
        self.ids = {
            "{volume-create}": self.spare,
            "{attachment-create}": self.attachment,
            "{attachment-create-connected}": self.attachment,
            "{type-create}": self.type,
        }

    def wait_until_available(self, volume):
        path = f"/volumes/{volume}"
        wait_until(lambda: self.request(path=path).body["volume"]["status"] == "available")

    def filled(self, value):
        text = json.dumps(value)
        for name, identity in self.ids.items():
            text = text.replace(name, identity)
        return json.loads(text)

    def everything(self):
        """All that alice can see of what she has."""
        paths = (
            f"/volumes/{self.volume}",
            f"/volumes/{self.spare}",
            f"/attachments/{self.attachment}",
            "/volumes/detail",
            "/attachments/detail",
            f"/types/{self.type}",
        )
        return [self.request(path=path).body for path in paths]

    def test_calls_cannot_reach_resources_of_another_project(self):
        before = self.everything()
        reached = {}
        for step in STORY:
            named = f"{step.path}{json.dumps(step.body)}"
            if not any(name in named for name in self.ids):
                continue
            call = (step.method, self.filled(step.path), self.filled(step.body))
            answer = self.request(*call, self.stranger, step.version)
            # Calls for administrators may be refused before the volume is looked up.
            allowed = {404} if step.token == wsgi_api.MEMBER else {403, 404}
            if answer.status not in allowed:
                reached[f"{step.method} {step.path} {step.name}"] = answer
        self.assertEqual({}, reached)
        self.assertEqual(before, self.everything())

    def test_lists_have_no_resources_of_another_project(self):
        self.assertEqual(2, len(self.request().body["volumes"]))
        attachment = self.alice.project_id
        for path in (
            "/volumes",
            "/volumes/detail",
            "/volumes?all_tenants=1",
            f"/volumes/detail?all_tenants=1&project_id={attachment}",
            "/volumes?name=disk",
            "/attachments",
            "/attachments/detail",
            "/attachments?all_tenants=1",
            f"/attachments?all_tenants=1&project_id={attachment}",
            f"/attachments/detail?volume_id={self.volume}",
            f"/attachments?instance_id={SERVER}",
        ):
            with self.subTest(path):
                answer = self.request(path=path, token=self.stranger)
                # Who is no administrator may not filter by everything.
                if "project_id" in path and answer.status == 400:
                    continue
                self.assertEqual(200, answer.status, answer.raw)
                self.assertEqual([], next(iter(answer.body.values())))
        for path in ("/volumes/summary", "/volumes/summary?all_tenants=1"):
            summary = self.request(path=path, token=self.stranger).body["volume-summary"]
            self.assertEqual((0, 0), (summary["total_count"], summary["total_size"]))

    def test_marker_of_another_project_is_not_found(self):
        for path in (
            f"/volumes?marker={self.volume}",
            f"/attachments?marker={self.attachment}",
        ):
            answer = self.request(path=path, token=self.stranger)
            self.assertIn(answer.status, {400, 404}, answer.raw)

    def test_private_type_is_visible_to_projects_with_access(self):
        def names(token):
            return [
                volume_type["name"]
                for volume_type in self.request(path="/types", token=token).body["volume_types"]
            ]

        self.assertEqual(["hers"], names(self.token))
        self.assertEqual([], names(self.stranger))
        wanted = {"volume": {"size": 1, "volume_type": "hers"}}
        self.assertIn(self.request("POST", "/volumes", wanted, self.stranger).status, {400, 404})
        answer = self.request(
            "GET", f"/types/{self.type}/os-volume-type-access", token=self.stranger
        )
        self.assertIn(answer.status, {403, 404})

    def test_admin_reaches_resources_of_all_projects(self):
        for path in (f"/volumes/{self.volume}", f"/attachments/{self.attachment}"):
            self.assertEqual(200, self.request(path=path, token=self.admin).status)
        listed = self.request(path="/volumes?all_tenants=1", token=self.admin).body["volumes"]
        self.assertEqual({self.volume, self.spare}, {item["id"] for item in listed})
        self.assertEqual([], self.request(token=self.admin).body["volumes"])


class EveryEndpointTest(Case):
    def list_requests(self):
        for found in endpoint.load():
            path = found.path
            for name in found.variables:
                path = path.replace(f"{{{name}}}", "x")
            body = None if found.method in {"GET", "DELETE"} else {found.action or "x": {}}
            yield found, path, body

    def test_endpoints_without_token_return_401(self):
        for found, path, body in self.list_requests():
            with self.subTest(found.operation):
                for url in (path, f"/{self.alice.project_id}{path}"):
                    self.assertEqual(
                        401, self.api.request(found.method, url, body, token="").status
                    )

    def test_endpoints_with_project_id_of_another_project_are_refused(self):
        for found, path, body in self.list_requests():
            for token in (self.stranger, self.admin):
                with self.subTest(found.operation):
                    answer = self.request(
                        found.method, f"/{self.alice.project_id}{path}", body, token
                    )
                    self.assertEqual((400, "Malformed request url"), (answer.status, answer.fault))

    def test_endpoints_for_callers_without_project_never_return_500(self):
        keystone = self.api.keystone
        for scope in ({"system_scope": "all"}, {"unscoped": True}):
            token = keystone.token(keystone.admin, **scope)
            for found, path, body in self.list_requests():
                with self.subTest(found.operation, **scope):
                    answer = self.request(found.method, path, body, token)
                    self.assertLess(answer.status, 500, answer.raw)
