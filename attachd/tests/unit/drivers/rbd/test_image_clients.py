# SPDX-License-Identifier: Apache-2.0
"""Clients of images, as the command "rados" prints them."""

import json
import unittest
from unittest import mock

from attachd import exception
from attachd.ceph import bindings, object_names
from attachd.drivers import command
from attachd.drivers.rbd import image_clients
from attachd.drivers.rbd.cluster import Session
from attachd.drivers.rbd.driver import RbdDriver
from attachd.drivers.rbd.image_clients import Watch
from attachd.drivers.rbd.watch_requests import WatchRequests
from attachd.linux import commands
from attachd.tests.unit.drivers import configured
from attachd.tests.unit.drivers.rbd import fake_modules

WATCH = "watcher=127.0.0.1:0/9 client.7 cookie=1\n"


class ImageClientsTest(unittest.TestCase):
    """A command that answers as the test says."""

    def setUp(self):
        super().setUp()
        self.lib = fake_modules.modules()
        self.enterContext(mock.patch.object(bindings, "load", return_value=self.lib))
        self.driver = configured.driver(RbdDriver)
        (images,) = self.driver._pools
        self.clients = images.clients
        self.run_command = self.enterContext(mock.patch.object(command, "run"))
        self.may_be_watched = self.enterContext(
            mock.patch.object(WatchRequests, "may_be_watched", return_value=True)
        )
        self.pool = fake_modules.Pool(self.lib)
        self.pool.objects["rbd_id.disk"] = object_names.encode("10ab")

    def answer(self, *answers):
        stdout, code, stderr = (*answers, 0, "")[:3] if len(answers) == 1 else answers
        self.run_command.return_value = commands.CommandResult(code, stdout, stderr)

    def sessions(self, *sessions):
        return mock.patch.object(self.driver._cluster, "sessions", return_value=sessions)

    def test_watches_have_number_and_address(self):
        self.answer(WATCH)
        self.assertEqual([Watch(7, "127.0.0.1:0/9")], self.clients.list_watches("10ab"))
        self.assertEqual("rbd_header.10ab", self.run_command.call_args.args[0][-1])

    def test_no_command_runs_for_an_image_that_no_client_has_open(self):
        self.may_be_watched.return_value = False
        self.assertEqual((), self.clients.list_watches("10ab"))
        self.may_be_watched.assert_called_once_with("volumes", "rbd_header.10ab")
        self.run_command.assert_not_called()

    def test_missing_header_has_no_watches_and_other_failures_are_errors(self):
        self.answer("", 1, "error listing watchers p/x: (2) No such file or directory")
        self.assertEqual([], self.clients.list_watches("10ab"))
        for reason, expected in (
            ("error listing watchers p/x: (1) Operation not permitted", "may not"),
            ("error listing watchers p/x: (5) Input/output error", "Input/output"),
            ("broken", "broken"),
        ):
            self.answer("", 1, reason)
            with self.assertRaisesRegex(exception.BackendError, expected):
                self.clients.check()

    def test_encryption_is_that_of_the_manager(self):
        self.answer("")
        driver = configured.driver(RbdDriver, rbd_ms_mode="secure")
        for images in driver._pools:
            images.clients.check()
        self.assertEqual(2, self.run_command.call_args.args[0].count("secure"))

    def test_lock_owner_is_client_of_exclusive_lock_alone(self):
        locker = {"name": "client.4106", "cookie": "auto 1", "description": "", "expiration": "0"}
        locked = {"name": "rbd_lock", "type": "exclusive", "tag": "internal"}
        own = [{**locker, "addr": "127.0.0.1:0/9"}]
        owner = Watch(4106, "127.0.0.1:0/9", "auto 1")
        for found, expected in (
            ({**locked, "lockers": []}, None),
            ({**locked, "lockers": own}, owner),
            ({**locked, "tag": "own", "lockers": own}, None),
            ({**locked, "lockers": [{**locker, "addr": "no address"}]}, None),
            # A whole address, a daemon.
            ({**locked, "lockers": [{**locker, "addr": "127.0.0.1:0/0"}]}, None),
            ({**locked, "lockers": [{**locker, "addr": "127.0.0.1:6800/9"}]}, None),
            ({**locked, "lockers": [{**locker, "cookie": "x", "addr": "127.0.0.1:0/9"}]}, None),
        ):
            self.answer(json.dumps(found, separators=(",", ":")))
            self.assertEqual(expected, self.clients.lock_owner("10ab"))
        self.answer("", 1, "error: (5) Input/output error")
        self.assertIsNone(self.clients.lock_owner("10ab"))

    def test_image_is_in_use_by_foreign_client_alone(self):
        self.answer(WATCH)
        with (
            self.sessions(Session(7, "client.admin", ("127.0.0.1:0/9",))),
            self.assertRaisesRegex(exception.BackendError, r"127\.0\.0\.1:0/9") as caught,
        ):
            self.clients.check_unused(self.pool, "disk")
        self.assertTrue(caught.exception.final)
        for entity in ("client.attachd", "client.attachd-headers"):
            with self.sessions(Session(7, entity, ())):
                self.assertEqual([], self.clients.list_foreign("10ab"))

    def test_watch_of_dead_manager_is_awaited(self):
        results = [commands.CommandResult(0, text, "") for text in (WATCH, "")]
        self.run_command.side_effect = results
        with self.sessions(), mock.patch.object(image_clients.time, "sleep") as sleep:
            self.clients.check_unused(self.pool, "disk")
        sleep.assert_called_once()
        self.clients.check_unused(self.pool, "missing")
