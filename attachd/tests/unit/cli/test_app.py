# SPDX-License-Identifier: Apache-2.0
"""The program as a whole: help, exit codes and output."""

import logging
import unittest
from unittest import mock

from openstack import exceptions

from attachd.tests.unit.cli import programs


class Broken:
    """A cloud that fails and logs secrets."""

    @property
    def block_storage(self):
        log = logging.getLogger("attachd.somewhere")
        try:
            int("inside")
        except ValueError:
            log.exception("%s was wrong", {"auth_password": "s3cret"})
        logging.getLogger("other.library").error("noise")
        log.info("this is going on")
        raise exceptions.SDKException("It is down.")


class HelpTest(unittest.TestCase):
    def test_help_lists_commands(self):
        done = programs.run("--help")
        self.assertEqual(0, done.code, done.err)
        for name in ("attachment-create", "attachment-list", "complete"):
            self.assertIn(name, done.out)

    def test_help_of_command_lists_its_options(self):
        for words in (("attachment-create", "--help"), ("help", "attachment-create")):
            done = programs.run(*words)
            self.assertEqual(0, done.code, done.err)
            self.assertIn("--initiator IQN", done.out)
            self.assertIn("usage: attachd attachment-create", done.out)

    def test_version_option_prints_version_of_package(self):
        self.assertRegex(programs.run("--version").out, r"^attachd \d")


class UsageErrorTest(unittest.TestCase):
    def refused(self, *words):
        done = programs.run(*words)
        self.assertEqual((2, ""), (done.code, done.out), done.err)
        self.assertLessEqual(len(done.err.splitlines()), 2)
        return done.err

    def test_program_without_command_fails_with_usage(self):
        self.assertIn("name a command", self.refused())

    def test_unknown_command_suggests_similar_ones(self):
        said = self.refused("attachment-lst")
        self.assertIn("'attachment-lst'", said)
        self.assertIn("attachment-list", said)

    def test_unknown_option_is_named(self):
        self.assertIn("--colour", self.refused("attachment-list", "--colour"))

    def test_missing_argument_is_named(self):
        self.assertIn("ATTACHMENT", self.refused("attachment-show"))

    def test_unknown_format_is_refused(self):
        self.assertIn("--format", self.refused("attachment-list", "--format", "rtf"))


class FailureTest(unittest.TestCase):
    def test_failure_is_one_line(self):
        done = programs.run("-q", "attachment-list", connection=Broken())
        self.assertEqual((1, ""), (done.code, done.out))
        self.assertIn("It is down.\n", done.err)

    def test_failure_shows_reason_code_of_service(self):
        for body, shown in (
            ({"badRequest": {"message": "It is down.", "reason_code": "attachd.x"}}, True),
            ({"badRequest": {"message": "It is down."}}, False),
            ("It is down.", False),
        ):
            response = mock.Mock(status_code=503, headers={}, **{"json.return_value": body})
            error = exceptions.HttpException("It is down.", response=response)
            connection = mock.Mock()
            connection.block_storage.request.side_effect = error
            done = programs.run("attachment-list", connection=connection)
            self.assertEqual(shown, done.err.endswith(" (attachd.x)\n"), done.err)

    def test_failure_shows_no_library_logs_traceback_or_secret(self):
        done = programs.run("attachment-list", connection=Broken())
        for unwanted in ("Traceback", "s3cret", "noise", "going on"):
            self.assertNotIn(unwanted, done.err)

    def test_failure_with_verbose_shows_logs_without_traceback(self):
        done = programs.run("-v", "attachment-list", connection=Broken())
        self.assertIn("this is going on", done.err)
        self.assertIn("noise", done.err)
        self.assertNotIn("Traceback", done.err)

    def test_failure_with_debug_shows_traceback_without_secrets(self):
        done = programs.run("--debug", "attachment-list", connection=Broken())
        self.assertEqual(1, done.code)
        self.assertIn("Traceback", done.err)
        self.assertIn("SDKException", done.err)
        self.assertNotIn("s3cret", done.err)

    def test_unreachable_service_fails_in_one_line_with_url(self):
        done = programs.run("attachment-list")
        self.assertEqual((1, ""), (done.code, done.out))
        self.assertIn("http://127.0.0.1:1/v3", done.err)
        self.assertEqual(1, len(done.err.splitlines()), done.err)

    def test_program_without_cloud_names_os_cloud(self):
        done = programs.run("attachment-list", settings={})
        self.assertEqual((1, ""), (done.code, done.out))
        self.assertIn("OS_CLOUD", done.err)

    def test_unknown_cloud_is_named(self):
        done = programs.run("--os-cloud", "nowhere", "attachment-list", settings={})
        self.assertEqual((1, ""), (done.code, done.out))
        self.assertIn("attachd: Cloud nowhere was not found.", done.err)

    def test_cloud_options_are_accepted_after_command(self):
        words = ("attachment-list", "--os-auth-type", "none", "--os-endpoint", "http://[::1]:1/v3")
        self.assertIn("http://[::1]:1/v3", programs.run(*words, settings={}).err)
