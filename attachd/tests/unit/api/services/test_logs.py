# SPDX-License-Identifier: Apache-2.0
"""Tests of log levels."""

import logging
from unittest import mock

from oslo_log import log

from attachd.api.services import logs
from attachd.conf import CONF
from attachd.tests.fixtures import api_context
from attachd.tests.fixtures.conf_fixture import override

PREFIX = "attachd.tests.logs"


class LogsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        override(self, "host", "h")
        self.logger = log.getLogger(PREFIX).logger
        self.logger.setLevel("ERROR")
        self.addCleanup(self.logger.setLevel, logging.NOTSET)
        self.manager_api = self.enterContext(mock.patch.object(logs, "manager_api"))
        self.manager_api.get_log_levels.return_value = {PREFIX: "INFO"}
        self.ctx = api_context.make_context(*api_context.ADMIN)
        api_context.report_backend("h@a")
        api_context.report_backend("i@b")

    def set_level(self, **body):
        """Set a level; return whether this process has it now, and the notified backends."""
        logs.set_log(self.ctx, {"prefix": PREFIX, "level": "debug", **body})
        calls = self.manager_api.set_log_levels.call_args_list
        return self.logger.level == logging.DEBUG, calls[0].args[1] if calls else []

    def test_missing_binary_selects_all_programs(self):
        for binary in ({}, {"binary": ""}, {"binary": "*"}):
            self.assertEqual((True, ["h@a", "i@b"]), self.set_level(**binary))
        self.manager_api.set_log_levels.assert_called_with(
            self.ctx, ["h@a", "i@b"], PREFIX, "DEBUG"
        )

    def test_binary_may_have_either_name(self):
        for name in ("cinder-api", "attachd-api"):
            self.assertEqual((True, []), self.set_level(binary=name))
            self.logger.setLevel("ERROR")
        self.assertEqual((False, []), self.set_level(binary="cinder-scheduler"))
        self.assertEqual((False, ["h@a", "i@b"]), self.set_level(binary="cinder-volume"))

    def test_host_selects_its_programs(self):
        self.assertEqual((True, ["h@a"]), self.set_level(server="h"))

    def test_backend_selects_its_manager(self):
        self.assertEqual((False, ["i@b"]), self.set_level(server="i@b"))

    def test_get_log_lists_selected_programs(self):
        expected = [
            {"host": CONF.host, "binary": "cinder-api", "levels": {PREFIX: "ERROR"}},
            {"host": "h@a", "binary": "cinder-volume", "levels": {PREFIX: "INFO"}},
            {"host": "i@b", "binary": "cinder-volume", "levels": {PREFIX: "INFO"}},
        ]
        cases = [
            ({}, expected),
            ({"binary": "cinder-api"}, expected[:1]),
            ({"server": "i"}, expected[2:]),
            ({"binary": "cinder-backup"}, []),
        ]
        for body, wanted in cases:
            answer = logs.get_log(self.ctx, {"prefix": PREFIX, **body})
            self.assertEqual({"log_levels": wanted}, answer)

    def test_silent_manager_is_not_asked(self):
        api_context.report_backend("j@c")
        with mock.patch.object(logs.binaries, "of_host") as moment:
            moment.return_value = [{"host": "j@c", "alive": False}]
            self.assertEqual((True, []), self.set_level())
