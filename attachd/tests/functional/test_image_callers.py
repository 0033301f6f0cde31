# SPDX-License-Identifier: Apache-2.0
"""Images of a real Glance for users that Glance does not know: HTTP basic authentication."""

import base64
import secrets

import bcrypt

from attachd.tests.fixtures import glance_fixture, http_client, keystone_fixture
from attachd.tests.functional.test_image_cache import ServedCase
from attachd.tests.functional.test_images import MIB
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until


@full_only("deployments")
class BasicTest(ServedCase):
    """Two projects of Keystone, whose users log in to attachd by name and password."""

    def setUp(self):
        super().setUp()
        keystone = keystone_fixture.shared(self)
        self.glance = glance_fixture.Glance(self, keystone)
        self.alice, self.bob = (keystone.user(name, "member") for name in ("alice", "bob"))
        images = "".join(f"{key} = {value}\n" for key, value in self.glance.options().items())
        users, roles = self.path.with_name("users"), self.path.with_name("roles")
        users.touch(mode=0o600)
        hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
        users.write_text(f"alice:{hashed}\nbob:{hashed}\nroot:{hashed}\n")
        roles.write_text(
            f"alice: {{project: '{self.alice.project_id}', roles: [member]}}\n"
            f"bob: {{project: '{self.bob.project_id}', roles: [member]}}\n"
            f"root: {{project: '{self.bob.project_id}', roles: [admin]}}\n"
        )
        self.path.write_text(
            f"{self.OPTIONS}[glance]\n{images}[api]\nauth_strategy = http_basic\n"
            f"http_basic_user_file = {users}\nhttp_basic_roles_file = {roles}\n"
        )
        self.start()
        self.content = secrets.token_bytes(MIB)

    def client(self, name):
        login = base64.b64encode(f"{name}:secret".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        return http_client.Client(f"{self.server.url}/v3", headers=headers)

    def refuse(self, name, image):
        body = {"volume": {"size": 1, "imageRef": image}}
        answer = self.client(name).request("POST", "/volumes", body)
        self.assertEqual(400, answer.status, answer)
        self.assertIn("unable to access requested image", answer.message)

    def test_image_of_other_project_is_not_found(self):
        image = self.glance.add(self.alice, self.content, name="own")
        for reference in (image, "own"):
            self.refuse("bob", reference)
            for name in ("alice", "root"):
                (volume,) = self.create(self.client(name), reference)
                self.assertEqual(self.content, self.data(volume, MIB))
        self.glance.add(self.bob, self.content, name="own")
        self.create(self.client("bob"), "own")

    def test_image_for_all_is_found_by_each_project(self):
        image = self.glance.add(self.alice, self.content, name="c", visibility="community")
        self.create(self.client("bob"), image)
        self.refuse("bob", "c")
        self.create(self.client("alice"), "c")
        image = self.glance.add(self.glance.service, self.content, name="p", visibility="public")
        for reference in (image, "p"):
            self.create(self.client("bob"), reference)

    def test_uploaded_image_is_one_of_the_project_of_the_caller(self):
        client, image = self.client("alice"), self.glance.add(self.alice, self.content)
        (volume,) = self.create(client, image)
        action = {"os-volume_upload_image": {"image_name": "made"}}
        answer = client.request_json("POST", f"/volumes/{volume}/action", action)
        made = answer["os-volume_upload_image"]["image_id"]
        wait_until(lambda: self.glance.show(self.alice, made)["status"] == "active")
        self.assertEqual(self.alice.project_id, self.glance.show(self.alice, made)["owner"])
        self.refuse("bob", made)
        self.create(client, made)
