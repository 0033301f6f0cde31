# SPDX-License-Identifier: Apache-2.0
"""How errors become answers, and whose log is changed."""

import logging
import unittest

from oslo_log import log
import oslo_messaging as messaging

from attachd import context, exception
from attachd.manager import rpc_decorators
from attachd.tests import backends


class AnsweringTest(unittest.TestCase):
    def test_errors_of_ours_are_answers_and_others_are_not(self):
        @rpc_decorators.answering
        def fail(error):
            """Fail."""
            raise error

        with self.assertRaises(messaging.ExpectedException):
            fail(exception.Conflict(reason="x"))
        with self.assertRaises(ZeroDivisionError):
            fail(ZeroDivisionError())
        self.assertEqual(("fail", "Fail."), (fail.__name__, fail.__doc__))


class LogLevelsTest(unittest.TestCase):
    def test_only_who_is_meant_changes_what_it_logs(self):
        logger = log.getLogger("attachd.tests.answering").logger
        self.addCleanup(logger.setLevel, logging.NOTSET)
        levels, who = (
            rpc_decorators.LogLevels(backends.HOST),
            context.RequestContext(overwrite=False),
        )
        for hosts, expected in ((["other@fake"], "ERROR"), ([backends.HOST], "DEBUG")):
            logger.setLevel("ERROR")
            levels.set_log_levels(who, hosts=hosts, prefix=logger.name, level="DEBUG")
            answer = levels.get_log_levels(who, prefix=logger.name)
            self.assertEqual({logger.name: expected}, answer)
