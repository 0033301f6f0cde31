# SPDX-License-Identifier: Apache-2.0
"""The format of log lines."""

import io
import logging
import sys
import unittest

from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log as oslo_log

from attachd import exception
from attachd.telemetry import log_format

REASON = "tgtd: no such target."


class FormatterTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.config = cfg.ConfigOpts()
        oslo_log.register_options(self.config)
        self.config([])
        self.formatter = log_format.Formatter(config=self.config)

    def line(self, message, *, name="attachd.manager.attach", traceback=False):
        """Return what is logged while an error is handled."""
        try:
            raise exception.BackendError(REASON)  # noqa: TRY301  the error that is handled
        except exception.BackendError:
            record = logging.LogRecord(
                name,
                logging.ERROR,
                __file__,
                1,
                message,
                (),
                sys.exc_info() if traceback else None,
            )
            return self.formatter.format(record).splitlines()

    def test_reason_of_message_is_not_repeated(self):
        (line,) = self.line(f"Volume v: revoke failed: {REASON}")
        self.assertEqual(1, line.count(REASON))
        self.assertTrue(line.endswith(f"Volume v: revoke failed: {REASON}"), line)

    def test_message_of_attachd_has_no_error_that_it_does_not_name(self):
        (line,) = self.line("Volume v: revoked")
        self.assertNotIn("BackendError", line)

    def test_message_of_library_keeps_the_error(self):
        (line,) = self.line("Connection lost", name="oslo.messaging")
        self.assertIn(
            f"Connection lost: attachd.exception.BackendError: Backend error: {REASON}", line
        )

    def test_line_above_traceback_names_the_error_once(self):
        for message in ("Backend tgt is down", f"Backend tgt is down: {REASON}"):
            first, *rest = self.line(message, traceback=True)
            self.assertEqual(1, first.count(REASON), first)
            self.assertIn("Traceback", rest[0])
            self.assertIn(f"BackendError: Backend error: {REASON}", "\n".join(rest))

    def test_use_replaces_formatters_of_oslo_log_only(self):
        root = logging.getLogger()
        others = logging.Formatter("%(message)s")
        handlers = [logging.StreamHandler(io.StringIO()) for _number in range(2)]
        handlers[0].setFormatter(formatters.ContextFormatter(config=self.config))
        handlers[1].setFormatter(others)
        for handler in handlers:
            root.addHandler(handler)
            self.addCleanup(root.removeHandler, handler)
        log_format.use(self.config, "attachd", "1.0")
        self.assertIsInstance(handlers[0].formatter, log_format.Formatter)
        self.assertIs(others, handlers[1].formatter)
