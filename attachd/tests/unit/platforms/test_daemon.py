# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import io
import logging
import os
import signal
import unittest

from attachd.platforms import daemon


class LogTest(unittest.TestCase):
    def test_log_lines_have_level_and_request_id(self):
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        self.addCleanup(root.setLevel, level)
        self.addCleanup(root.handlers.__setitem__, slice(None), handlers)
        with contextlib.redirect_stderr(io.StringIO()) as output:
            daemon.log_to_stderr(argparse.Namespace(debug=False))
            logging.getLogger("attachd.csi").info("hello")
            logging.getLogger("attachd.csi").debug("unseen")
        self.assertIn(" INFO attachd.csi [-] hello", output.getvalue())
        self.assertNotIn("unseen", output.getvalue())


class SignalTest(unittest.TestCase):
    def test_signals_end_wait(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        for number in (signal.SIGTERM, signal.SIGINT):
            ended = daemon.end_on_signal()
            self.assertFalse(ended.is_set())
            os.kill(os.getpid(), number)
            daemon.wait_for(ended)


class OptionsTest(unittest.TestCase):
    def test_options_have_defaults_and_limits(self):
        parser = argparse.ArgumentParser()
        daemon.add_node_options(parser)
        daemon.add_server_options(parser)
        options = parser.parse_args([])
        self.assertEqual(
            (daemon.AGENT_SOCKET, False, 32),
            (options.agent_socket, options.assume_empty, options.workers),
        )
        for text in ("0", "-1", "1.5", "10000", "x"):
            with self.assertRaises(argparse.ArgumentTypeError):
                daemon.positive(text)
