# SPDX-License-Identifier: Apache-2.0
"""Tests of HTTP basic authentication, of its users, and of changes to their files."""

import base64
import os
from unittest import mock

import bcrypt

from attachd import exception
from attachd.api import http_basic
from attachd.tests.fixtures import conf_fixture, lifetime, wsgi_api


def encoded(name="alice", password="öffne dich"):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Case(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.users = folder / "htpasswd"
        roles = folder / "roles.yaml"
        conf_fixture.override(self, "http_basic_user_file", str(self.users), group="api")
        conf_fixture.override(self, "http_basic_roles_file", str(roles), group="api")
        made = bcrypt.hashpw("öffne dich".encode(), bcrypt.gensalt(4)).decode()
        self.users.write_text(f"alice:{made}\n")
        self.users.chmod(0o600)
        roles.write_text("alice: {project: aa, roles: [reader]}")
        self.contexts = []

    def inner(self, environ, start_response):
        self.assertNotIn("HTTP_AUTHORIZATION", environ)
        if environ["PATH_INFO"].startswith("/v3"):
            self.contexts.append(http_basic.identify(environ, None))
        start_response("204 No Content", [])
        return []

    def request(self, path="/volumes", **headers):
        return wsgi_api.WsgiApi(None, http_basic.wrap(self.inner)).request(
            "GET", path, token="", **headers
        )


class BasicAuthMiddlewareTest(Case):
    def test_correct_login_is_accepted(self):
        self.assertEqual(204, self.request(authorization=encoded()).status)
        (context,) = self.contexts
        self.assertEqual(("alice", "aa"), (context.user_id, context.project_id))
        self.assertEqual(["reader"], context.roles)
        self.assertEqual([], context.service_roles)
        self.assertIsNone(context.auth_token)
        self.assertFalse(context.is_admin)

    def test_failed_login_returns_challenge(self):
        for said in (encoded("bob"), encoded(password="x")):
            with self.subTest(said), self.assertLogs("attachd.api.http_basic", "WARNING") as logs:
                answer = self.request(authorization=said)
            self.assertEqual(401, answer.status)
            self.assertNotIn("öffne", logs.output[0])
            self.assertRegex(answer.headers["www-authenticate"], '^Basic realm="attachd"')
            self.assertEqual("application/json", answer.headers["content-type"])
            self.assertEqual({"code", "title", "message"}, set(answer.body["error"]))

    def test_malformed_credentials_are_refused(self):
        for said in (
            "", "Basic", "Basic ", "Basic !", "Bearer abc", "x y z", "Basic " + "ö" * 3,
            "Basic " + base64.b64encode(b"alice").decode(),
            "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        ):  # fmt: skip
            with self.subTest(said):
                self.assertEqual(401, self.request(authorization=said).status)

    def test_missing_credentials_are_refused_without_log(self):
        with self.assertNoLogs("attachd.api.http_basic"):
            self.assertEqual(401, self.request().status)
        self.assertEqual(401, self.request("//v3").status)
        self.assertEqual([], self.contexts)

    def test_headers_of_other_strategies_are_ignored(self):
        self.assertEqual(401, self.request(x_auth_token="alice:aa", x_user="alice").status)

    def test_discovery_is_public(self):
        self.assertEqual(204, self.request("//").status)

    def test_invalid_files_prevent_start(self):
        self.users.unlink()
        with self.assertRaises(exception.ConfigurationError):
            self.request()


class IdentifyTest(Case):
    def test_unseen_request_is_unauthorized(self):
        with self.assertRaises(exception.Unauthorized):
            http_basic.identify({"HTTP_AUTHORIZATION": encoded()}, None)

    def test_url_of_other_project_returns_400(self):
        account = http_basic.User("alice", "aa", ())
        with self.assertRaisesRegex(exception.BadRequest, "^Malformed request url$"):
            http_basic.identify({"attachd.account": account}, "bb")


ALICE = b"open sesame"
ROLES = "alice: {project: aa, roles: [member]}\nroot: {project: bb, roles: [admin, auditor]}\n"


def hashed(password, cost=4, prefix=b"2b"):
    return bcrypt.hashpw(password, bcrypt.gensalt(cost, prefix)).decode()


class UsersCase(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        folder = lifetime.temp_dir(self)
        self.users = folder / "htpasswd"
        self.roles = folder / "roles.yaml"
        self.write(self.users, f"# who\n\nalice:{hashed(ALICE)}\nroot:{hashed(b'toor')}\n")
        self.write(self.roles, ROLES)

    def write(self, path, text, mode=0o640):
        """Replace a file by a new inode, as htpasswd and editors do."""
        new = path.with_suffix(".new")
        new.write_text(text)
        new.chmod(mode)
        new.replace(path)

    def read(self):
        return http_basic.UserStore(self.users, self.roles)

    def assert_refused(self, words):
        with self.assertRaisesRegex(exception.ConfigurationError, words) as caught:
            self.read()
        return str(caught.exception)


class FindTest(UsersCase):
    def test_correct_password_returns_project_and_roles(self):
        found = self.read().find("alice", ALICE)
        self.assertEqual(("alice", "aa", ("member", "reader")), found)

    def test_role_includes_implied_roles(self):
        found = self.read().find("root", b"toor")
        self.assertEqual(("admin", "auditor", "manager", "member", "reader"), found.roles)

    def test_wrong_password_returns_none(self):
        known = self.read()
        for password in (b"", b"x", ALICE + b"x", ALICE.upper(), b"\0", b"\xff" * 100):
            self.assertIsNone(known.find("alice", password), password)

    def test_unknown_name_returns_none(self):
        known = self.read()
        for name in ("", "bob", "Alice", "alice ", "# who"):
            self.assertIsNone(known.find(name, ALICE), name)

    def test_hashes_of_all_tools_are_accepted(self):
        for prefix in ("2a", "2b", "2y"):
            made = hashed(ALICE).replace("$2b$", f"${prefix}$")
            self.write(self.users, f"alice:{made}\n")
            self.assertIsNotNone(self.read().find("alice", ALICE), prefix)

    def test_password_longer_than_bcrypt_limit_is_rejected(self):
        long = b"x" * 72
        self.write(self.users, f"alice:{hashed(long)}\n")
        known = self.read()
        self.assertIsNotNone(known.find("alice", long))
        self.assertIsNone(known.find("alice", long + b"y"))

    def test_unknown_name_takes_as_long_as_wrong_password(self):
        self.write(self.users, f"alice:{hashed(ALICE, cost=6)}\n")
        known = self.read()
        with mock.patch.object(bcrypt, "checkpw", wraps=bcrypt.checkpw) as checked:
            known.find("bob", ALICE)
            known.find("alice", b"wrong")
        costs = [call.args[1][:7] for call in checked.call_args_list]
        self.assertEqual([b"$2b$06$"] * 2, costs)

    def test_correct_password_is_hashed_once(self):
        known = self.read()
        known.find("alice", ALICE)
        with mock.patch.object(bcrypt, "checkpw") as checked:
            self.assertIsNotNone(known.find("alice", ALICE))
            checked.assert_not_called()
            checked.return_value = False
            self.assertIsNone(known.find("alice", b"other"))
            self.assertIsNone(known.find("root", ALICE))

    def test_cache_of_verified_passwords_is_limited(self):
        known = self.read()
        with mock.patch.object(http_basic, "_MAX_VERIFIED", 1):
            for _round in range(3):
                self.assertIsNotNone(known.find("alice", ALICE))
                self.assertIsNotNone(known.find("root", b"toor"))
                self.assertEqual(1, len(known._verified_cache))

    def test_user_in_one_file_only_cannot_log_in(self):
        self.write(self.users, f"alice:{hashed(ALICE)}\nbob:{hashed(b'b')}\n")
        with self.assertLogs("attachd.api.http_basic", "WARNING") as logged:
            known = self.read()
        self.assertIsNone(known.find("bob", b"b"))
        self.assertIn("'bob'", logged.output[0])
        self.assertIn("'root'", logged.output[1])


class FilesTest(UsersCase):
    def test_files_with_open_permissions_are_rejected(self):
        self.users.chmod(0o644)
        self.assert_refused(f"chmod o= {self.users}$")
        self.users.chmod(0o640)
        self.roles.chmod(0o646)
        self.assert_refused(f"chmod o-w {self.roles}$")
        self.roles.chmod(0o644)
        self.read()

    def test_missing_file_is_named_in_error(self):
        self.users.unlink()
        self.assert_refused(f"{self.users}: No such file")

    def test_malformed_line_is_named_without_its_hash(self):
        for line in (
            "alice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=",
            "alice",
            "alice:plain",
            ":",
            "a b:",
        ):
            self.write(self.users, f"\n{line}\n")
            said = self.assert_refused("line 2 is not NAME:HASH")
            self.assertNotIn("VBP", said)

    def test_duplicate_name_is_rejected(self):
        self.write(self.users, f"alice:{hashed(ALICE)}\nalice:{hashed(b'other')}\n")
        self.assert_refused("line 2 repeats the name .alice.")

    def test_invalid_roles_are_explained(self):
        for text, words in (
            ("alice: [", "is not YAML"),
            ("- alice", "is not of type 'object'"),
            ("alice: {roles: []}", "alice: 'project' is a required property"),
            (
                "alice: {project: 12, roles: []}",
                "alice.project: 12 is not of type 'string'; quote",
            ),
            ("alice: {project: aa, roles: member}", "alice.roles"),
            ("alice: {project: aa, roles: [], more: 1}", "more"),
            ("alice: {project: demo, roles: []}", "alice.project: 'demo' cannot be in a URL"),
        ):
            with self.subTest(text):
                self.write(self.roles, text)
                self.assert_refused(words)

    def test_file_that_is_not_utf_8_is_rejected(self):
        self.roles.write_bytes(b"al\xff")
        self.assert_refused("is not UTF-8")

    def test_empty_files_are_accepted(self):
        self.write(self.users, "")
        self.write(self.roles, "")
        self.assertIsNone(self.read().find("alice", ALICE))


class ChangeTest(UsersCase):
    def setUp(self):
        super().setUp()
        self.known = self.read()
        self.assertIsNotNone(self.known.find("alice", ALICE))

    def test_changed_password_takes_effect_at_once(self):
        self.write(self.users, f"alice:{hashed(b'new')}\nroot:{hashed(b'toor')}\n")
        self.assertIsNone(self.known.find("alice", ALICE))
        self.assertIsNotNone(self.known.find("alice", b"new"))

    def test_changed_roles_take_effect_for_cached_user(self):
        self.write(self.roles, ROLES.replace("[member]", "[reader]"))
        self.assertEqual(("reader",), self.known.find("alice", ALICE).roles)

    def test_removed_user_cannot_log_in(self):
        self.write(self.users, f"root:{hashed(b'toor')}\n")
        self.assertIsNone(self.known.find("alice", ALICE))

    def test_files_that_become_invalid_change_nothing_and_log_once(self):
        for path, text, mode in (
            (self.users, "nonsense", 0o640),
            (self.users, f"bob:{hashed(b'b')}", 0o644),
            (self.roles, "nonsense", 0o640),
        ):
            with self.subTest(text):
                good = path.read_text()
                self.write(path, text, mode)
                with self.assertLogs("attachd.api.http_basic", "ERROR") as logged:
                    self.assertIsNotNone(self.known.find("alice", ALICE))
                self.assertIn(str(path), logged.output[0])
                with self.assertNoLogs("attachd.api.http_basic", "ERROR"):
                    self.assertIsNotNone(self.known.find("alice", ALICE))
                self.write(path, good)
                self.assertIsNotNone(self.known.find("alice", ALICE))

    def test_file_that_disappears_changes_nothing(self):
        self.users.unlink()
        with self.assertLogs("attachd.api.http_basic", "ERROR"):
            self.assertIsNotNone(self.known.find("alice", ALICE))

    def test_unchanged_files_are_not_read_again(self):
        with mock.patch.object(http_basic.UserStore, "_read") as read:
            self.known.find("alice", ALICE)
            read.assert_not_called()
            os.utime(self.users, ns=(1, 1))
            read.return_value = self.known._loaded
            self.known.find("alice", ALICE)
            read.assert_called_once()
