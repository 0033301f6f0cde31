# SPDX-License-Identifier: Apache-2.0

import gc
import io
import logging
import os
import unittest
from unittest import mock
import weakref

from oslo_config import cfg
import oslo_messaging as messaging

from attachd import service
from attachd.conf import CONF
from attachd.tests.fixtures import conf_fixture, lifetime


class PrepareTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        CONF.clear()  # another test of this process may have parsed a command line
        # The test runner's own handlers and levels come back afterwards.
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level

        def restore():
            logging.captureWarnings(False)
            root.handlers[:] = handlers
            root.setLevel(level)
            CONF.clear_default("use_stderr")
            CONF.clear_default("host")
            CONF([], project="attachd", default_config_files=[])

        self.addCleanup(restore)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def test_prepare_prefers_config_files_of_command_line(self):
        named = self.write("named.conf", "[rpc]\nmax_calls = 3\n")
        usual = self.write("usual.conf", "[rpc]\nmax_calls = 4\n")
        service.prepare(["--config-file", named], config_files=[usual])
        self.assertEqual(3, CONF.rpc.max_calls)

    def test_prepare_lets_later_files_override_earlier_ones(self):
        first = self.write("1.conf", "[rpc]\nmax_calls = 1\nattach_timeout = 5\n")
        second = self.write("2.conf", "[rpc]\nmax_calls = 2\n")
        with mock.patch.dict(os.environ, {"ATTACHD_CONFIG_FILES": f"{first}:{second}"}):
            service.prepare([])
        self.assertEqual((2, 5), (CONF.rpc.max_calls, CONF.rpc.attach_timeout))

    def test_prepare_sets_defaults_below_config_files(self):
        service.prepare([], config_files=[], defaults={"host": "somewhere"})
        self.assertEqual("somewhere", CONF.host)
        CONF.clear()
        overriding = self.write("1.conf", "[DEFAULT]\nhost = elsewhere\n")
        service.prepare([], config_files=[overriding], defaults={"host": "somewhere"})
        self.assertEqual("elsewhere", CONF.host)

    def test_prepare_with_invalid_transport_url_raises(self):
        for url in ("rabbit://me:it@127.0.0.1:port/", "nonsense", "rabit://127.0.0.1/"):
            named = self.write("1.conf", f"[DEFAULT]\ntransport_url = {url}\n")
            with self.subTest(url), self.assertRaisesRegex(cfg.Error, r"\[DEFAULT\]transport_url"):
                service.prepare([], config_files=[named])
            CONF.clear()

    def test_prepare_sets_control_exchange(self):
        service.prepare([], config_files=[])
        self.assertEqual("attachd", CONF.control_exchange)

    def test_prepare_logs_to_standard_error(self):
        with (
            mock.patch("sys.stdout", io.StringIO()) as output,
            mock.patch("sys.stderr", io.StringIO()) as errors,
        ):
            service.prepare([], config_files=[])
            logging.getLogger("attachd").warning("a warning")
        self.assertEqual("", output.getvalue())
        self.assertIn("a warning", errors.getvalue())


class Circle:
    """An object that refers to itself."""

    def __init__(self):
        self.myself = self


class GarbageCollectionTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)
        self.before = gc.get_threshold()
        service.tune_garbage_collection()

    def test_tune_garbage_collection_freezes_existing_objects(self):
        self.assertGreater(gc.get_freeze_count(), 1000)

    def test_tune_garbage_collection_raises_threshold(self):
        self.assertEqual((service.GC_THRESHOLD, *self.before[1:]), gc.get_threshold())

    def test_tuned_garbage_collection_collects_later_cycles(self):
        seen = weakref.ref(Circle())
        made = [[] for _ in range(2 * service.GC_THRESHOLD)]
        self.assertEqual(2 * service.GC_THRESHOLD, len(made))
        self.assertIsNone(seen())


class SharedVirtualHostTest(unittest.TestCase):
    def warnings(self, agents):
        messaging.TransportURL(CONF)  # registers its options
        conf_fixture.override(self, "transport_url", "rabbit://me:it@mq1/main")
        conf_fixture.override(self, "transport_url", agents, "agent")
        with mock.patch.object(service.LOG, "warning") as warning:
            service.warn_of_shared_virtual_host()
        return warning.call_count

    def test_shared_virtual_host_is_logged(self):
        self.assertEqual(1, self.warnings(None))
        self.assertEqual(1, self.warnings("rabbit://node-1:it@mq1:5672/main"))

    def test_separate_virtual_host_is_not_logged(self):
        self.assertEqual(0, self.warnings("rabbit://node-1:it@mq1/agents"))
        self.assertEqual(0, self.warnings("inprocess://"))
