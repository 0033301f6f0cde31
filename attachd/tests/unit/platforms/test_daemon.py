# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import io
import logging
import os
import re
import signal
import unittest
import urllib.request

from attachd.platforms import daemon
from attachd.platforms.call_metrics import CallMetrics
from attachd.telemetry import exporter, metrics
from attachd.tests.fixtures import metric_samples
from attachd.tests.wait import TIMEOUT, wait_until


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

    def test_address_of_metrics_is_host_and_port(self):
        parser = argparse.ArgumentParser()
        daemon.add_server_options(parser)
        self.assertIsNone(parser.parse_args([]).metrics_address)
        for text, expected in (
            ("127.0.0.1:0", ("127.0.0.1", 0)),
            ("[::1]:9778", ("::1", 9778)),
            ("node-1:65535", ("node-1", 65535)),
        ):
            self.assertEqual(expected, parser.parse_args([f"--metrics={text}"]).metrics_address)
        for text in ("9778", ":9778", "host:65536", "host:x", "a b:1", "::1:9778"):
            with self.subTest(text), contextlib.redirect_stderr(io.StringIO()) as output:
                with self.assertRaises(SystemExit):
                    parser.parse_args([f"--metrics={text}"])
                self.assertIn("not HOST:PORT", output.getvalue())


class MetricsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        metric_samples.use(self)

    def test_metrics_are_served_until_block_ends(self):
        options = argparse.Namespace(metrics_address=exporter.Address("127.0.0.1", 0))
        with (
            self.assertLogs("attachd.telemetry.exporter", "INFO") as logged,
            daemon.serving_metrics(options, CallMetrics("csi")),
        ):
            wait_until(lambda: logged.output)
            (url,) = re.findall(r"http://\S+", logged.output[0])
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                self.assertIn("attachd_build_info", answer.read().decode())
        with self.assertRaises(OSError):
            urllib.request.urlopen(url, timeout=TIMEOUT)

    def test_metrics_are_off_without_address(self):
        metrics.disable()
        with daemon.serving_metrics(argparse.Namespace(metrics_address=None), CallMetrics("csi")):
            self.assertFalse(metrics.is_enabled())
