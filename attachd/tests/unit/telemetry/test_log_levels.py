# SPDX-License-Identifier: Apache-2.0
"""Changing and reading the levels of loggers."""

import logging
import unittest

from oslo_log import log

from attachd.telemetry import log_levels

PREFIX = "attachd.tests.levels"


class LevelsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.loggers = [log.getLogger(f"{PREFIX}.{name}").logger for name in "ab"]
        self.foreign = logging.getLogger("foreign.levels")
        for logger in [*self.loggers, self.foreign]:
            logger.setLevel("WARNING")
            self.addCleanup(logger.setLevel, logging.NOTSET)

    def test_change_level_by_prefix_changes_only_matching_loggers(self):
        log_levels.change(f"{PREFIX}.a", "DEBUG")
        self.assertEqual(
            {f"{PREFIX}.a": "DEBUG", f"{PREFIX}.b": "WARNING"}, log_levels.current(PREFIX)
        )
        self.assertTrue(self.loggers[0].isEnabledFor(logging.DEBUG))

    def test_change_level_without_prefix_skips_libraries(self):
        before = {name: logging.getLogger(name).level for name in log.get_loggers() if name}
        log_levels.change("", "ERROR")
        for name, level in before.items():
            self.addCleanup(logging.getLogger(name).setLevel, level)
        self.assertEqual({"ERROR"}, set(log_levels.current("").values()))
        self.assertNotIn("foreign.levels", log_levels.current(""))
        self.assertEqual({"foreign.levels": "WARNING"}, log_levels.current("foreign"))
        log_levels.change("foreign", "DEBUG")
        self.assertEqual({"foreign.levels": "DEBUG"}, log_levels.current("foreign"))

    def test_current_level_of_logger_without_level_is_inherited(self):
        self.loggers[0].setLevel(logging.NOTSET)
        inherited = logging.getLevelName(logging.getLogger().getEffectiveLevel())
        self.assertEqual({f"{PREFIX}.a": inherited}, log_levels.current(f"{PREFIX}.a"))
