# SPDX-License-Identifier: Apache-2.0
"""Tests of sign-in, roles and outages of the status page in a browser."""

import base64
import json

import bcrypt

from attachd.tests.fixtures import keystone_fixture, lifetime
from attachd.tests.fixtures.deployments import NO_LOOP_DEVICES, AllInOne
from attachd.tests.fixtures.http_client import Client
from attachd.tests.functional.test_status_page import VERSION, StatusPageCase
from attachd.tests.selection import full_only

PROJECTS = {"root": "0" * 32, "alice": "a" * 32, "bob": "b" * 32}
ROLES = {"root": ["admin"], "alice": ["member"], "bob": ["reader"]}
PASSWORD = "pass: wörd"
ADMINISTRATORS = ("Hosts", "Back ends", "Managers")


@full_only("browser")
class PasswordTest(StatusPageCase):
    def start(self):
        folder = lifetime.temp_dir(self)
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        users, roles = folder / "users", folder / "roles"
        users.touch(mode=0o600)
        users.write_text("".join(f"{name}:{hashed}\n" for name in ROLES))
        entries = {n: {"project": PROJECTS[n], "roles": ROLES[n]} for n in ROLES}
        roles.write_text(json.dumps(entries))
        return AllInOne.configured(
            self,
            f"{NO_LOOP_DEVICES}\n[api]\nauth_strategy = http_basic\n"
            f"http_basic_user_file = {users}\nhttp_basic_roles_file = {roles}\n",
        )

    def use(self, name):
        """Send the requests of this test as a user."""
        headers = basic_header(name, PASSWORD)
        self.api = Client(f"{self.service.url}/v3", VERSION, headers=headers)

    def sign_in(self, name, password=PASSWORD):
        self.browser.type("name", name)
        self.browser.type("password", password)
        self.browser.click("Sign in", "form")

    def test_wrong_password_is_refused_as_api_says_it(self):
        page = self.browser
        page.open(self.url)
        page.wait_for("Sign in to attachd")
        self.sign_in("alice", "wrong")
        page.wait_for("requires authentication", "[role=alert]")
        self.assertIsNone(page.run("return sessionStorage.getItem('attachd.sign-in')"))
        self.assertEqual("", page.run("return document.cookie"))

    def test_user_sees_own_project_only_and_administrator_all(self):
        page = self.browser
        self.use("alice")
        _volume, attachment = self.attach("compute-7", name="alices-data")
        page.open(f"{self.url}#/attachments")
        self.sign_in("bob")
        page.wait_for("No attachment matches.", "main")
        for text in ADMINISTRATORS:
            self.assertNotIn(text, page.text("nav"))
        page.run("location.hash = arguments[0]", f"#/attachments/{attachment}")
        page.wait_for("could not be found", "[role=alert]")
        page.run("location.hash = '#/hosts'")
        page.wait_for("Policy doesn't allow", "[role=alert]")
        page.click("Sign out", "header")
        page.wait_for("Sign in to attachd")
        self.assertIsNone(page.run("return sessionStorage.getItem('attachd.sign-in')"))
        page.run("location.hash = '#/attachments'")
        self.sign_in("alice")
        page.wait_for("compute-7", "main")
        page.click("Sign out", "header")
        page.wait_for("Sign in to attachd")
        self.sign_in("root")
        page.wait_for("compute-7", "main")
        for text in ADMINISTRATORS:
            self.assertIn(text, page.text("nav"))
        self.assert_no_problems()

    def test_actions_that_policy_refuses_are_not_offered(self):
        page = self.browser
        page.open(self.url)
        page.wait_for("Sign in to attachd")
        self.sign_in("bob")
        page.wait_for("Nothing is wrong.", "main")
        may = "return import('./session.js').then((module) => module.may(arguments[0]))"
        self.assertFalse(page.run(may, "attachment_delete"))
        self.assertFalse(page.run(may, "host_fence"))
        page.click("Sign out", "header")
        page.wait_for("Sign in to attachd")
        self.sign_in("alice")
        page.wait_for("Nothing is wrong.", "main")
        self.assertTrue(page.run(may, "attachment_delete"))
        self.assertFalse(page.run(may, "host_fence"))

    def test_refused_action_is_shown_and_changes_nothing(self):
        page = self.browser
        self.use("alice")
        _volume, attachment = self.attach("compute-7", name="data")
        self.use("bob")
        page.open(f"{self.url}#/attachments/{attachment}")
        self.sign_in("alice")
        page.wait_for("Host has access", ".timeline")
        page.wait_for("Detach…", "main")
        # Another tab of this user signs in as one who may only read.
        page.run(
            "import('./session.js').then((module) => module.signInByPassword(...arguments))",
            "bob",
            PASSWORD,
        )
        page.click("Detach…", "main")
        page.click("Detach", "dialog")
        page.wait_for("Not done", "dialog")
        page.wait_for("Policy doesn't allow volume:attachment_delete", "dialog")
        self.use("alice")
        shown = self.api.request_json("GET", f"/attachments/{attachment}")["attachment"]
        self.assertEqual("attached", shown["status"])

    def test_reloaded_page_is_still_signed_in(self):
        page = self.browser
        page.open(self.url)
        self.sign_in("root")
        page.wait_for("Nothing is wrong.")
        page.open("about:blank")
        page.open(self.url)
        page.wait_for("Nothing is wrong.")
        page.wait_for("root", "header")


def basic_header(name, password):
    """Return the header of HTTP Basic, in UTF-8."""
    encoded = base64.b64encode(f"{name}:{password}".encode())
    return {"Authorization": f"Basic {encoded.decode()}"}


@full_only("browser")
class KeystoneTest(StatusPageCase):
    def start(self):
        self.keystone = keystone_fixture.shared(self)
        service = self.keystone.user("attachd", "service", project="service")
        return AllInOne.configured(
            self,
            f"{NO_LOOP_DEVICES}\n[api]\nauth_strategy = keystone\n"
            f"[ui]\nkeystone_url = {self.keystone.url}\n{service.middleware}",
        )

    def sign_in(self, user, password):
        for name, text in (("user", user.name), ("project", user.project), ("password", password)):
            self.browser.type(name, text)
        self.browser.click("Sign in", "form")

    def test_password_is_exchanged_for_token_at_keystone(self):
        page, alice = self.browser, self.keystone.user("alice", "member")
        page.open(self.url)
        page.wait_for("Or with a token")
        self.sign_in(alice, "wrong")
        page.wait_for("requires authentication", "[role=alert]")
        page.open("about:blank")
        page.open(self.url)
        self.sign_in(alice, alice.password)
        page.wait_for("Nothing is wrong.")
        stored = page.run("return sessionStorage.getItem('attachd.sign-in')")
        self.assertNotIn(alice.password, stored)
        self.assert_no_problems()

    def test_token_signs_in_until_it_is_revoked(self):
        page, alice = self.browser, self.keystone.user("alice", "member")
        token = self.keystone.token(alice)
        page.open(self.url)
        page.type("token", token)
        page.run("document.querySelector('section button').click()")
        page.wait_for("Nothing is wrong.")
        page.run("sessionStorage.clear()")
        page.run(
            "import('./session.js').then(({ signInByToken }) => signInByToken('invalid'))",
        )
        page.click("Volumes", "nav")
        page.wait_for("Sign in to attachd")
        page.wait_for("requires authentication", "[role=alert]")


@full_only("browser")
class OutageTest(StatusPageCase):
    def start(self):
        self.state = lifetime.temp_dir(self) / "state"
        return self.start_again()

    def start_again(self, port="0"):
        return AllInOne(self, self.state, self.write_configuration(), f"--port={port}")

    def write_configuration(self):
        path = self.state.parent / "own.conf"
        path.write_text(NO_LOOP_DEVICES)
        return f"--config-file={path}"

    def test_page_says_that_service_is_away_and_continues_with_it(self):
        page = self.browser
        page.open(f"{self.url}#/volumes")
        page.wait_for("Live", ".live")
        self.service.kill()
        page.wait_for("Not live", ".live")
        page.wait_for("does not answer", ".notice")
        page.click("Attachments", "nav")
        page.wait_for("The API does not answer.", "[role=alert]")
        self.service = self.start_again(self.service.url.rpartition(":")[2])
        page.wait_for("No attachment matches.", "main")
        page.wait_without("Not live", ".live")
        self.attach("compute-9", name="after")
        page.wait_for("compute-9", "table")
