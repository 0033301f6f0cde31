# SPDX-License-Identifier: Apache-2.0
"""The process that extends images, without a cluster; test_rbd_headers.py has one."""

import errno
import json
import subprocess
import unittest
from unittest import mock

from attachd import exception
from attachd.drivers import base
from attachd.drivers.rbd import resizing, users
from attachd.drivers.rbd.driver import RbdDriver
from attachd.tests.unit.drivers import configured

NAMING = users.Naming(["fast", "volumes"], "attachd-")
PORTS = {"mon dump": [3300, 6789], "osd dump": [6800, 0]}


def _dump(command):
    """Return the answer of the monitors, with one address for each daemon."""
    if command == "health":
        return {"checks": {"OSD_FULL": {"summary": {"message": "1 full osd(s)"}}}}
    addresses = [{"addrvec": [{"addr": f"[::1]:{port}"}]} for port in PORTS[command]]
    return {f"{command[:3]}s": [{"public_addrs": address} for address in addresses]}


class ResizingTest(unittest.TestCase):
    """A cluster that gives the program a key."""

    def setUp(self):
        super().setUp()
        driver = configured.driver(RbdDriver)
        self.cluster = driver._cluster
        self.create_user = mock.Mock(return_value="KEY")
        self.enterContext(mock.patch.object(self.cluster, "create_user", self.create_user))
        # The second OSD never ran.
        self.enterContext(mock.patch.object(self.cluster, "read", side_effect=_dump))
        self.resizing = resizing.Resizing(self.cluster, NAMING, driver.options)

    def extend(self, size_bytes=2**31, **result):
        ended = subprocess.CompletedProcess([], 0, **result)
        with mock.patch.object(subprocess, "run", return_value=ended) as run:
            self.resizing.extend("volumes", "attachd-x", size_bytes)
        return run

    def test_key_is_not_on_the_command_line(self):
        run = self.extend(stdout=b"{}", stderr=b"")
        self.assertNotIn("KEY", f"{run.call_args.args}")
        self.assertIn(b'"key": "KEY"', run.call_args.kwargs["input"])
        self.assertIn(b'"ports": [3300, 6789, 6800]', run.call_args.kwargs["input"])

    def test_user_reaches_no_data_and_no_other_pool(self):
        caps = resizing.capabilities(NAMING)["osd"]
        self.assertNotIn("rbd_data", caps)
        self.assertFalse(users.may_use(["fast", "volumes"], {"osd": caps}))

    def test_user_with_other_capabilities_gets_the_right_ones(self):
        self.create_user.side_effect = [None, "KEY"]
        with mock.patch.object(self.cluster, "set_capabilities") as set_capabilities:
            self.extend(stdout=b"{}", stderr=b"")
        set_capabilities.assert_called_once()
        self.create_user.side_effect = [None, None]
        with (
            mock.patch.object(self.cluster, "set_capabilities"),
            self.assertRaisesRegex(exception.BackendError, "does not keep"),
        ):
            self.extend(stdout=b"{}", stderr=b"")

    def test_error_of_image_and_end_of_program_are_reported(self):
        for result, reason in (
            ({"stdout": b'{"errno": 22, "error": "invalid"}', "stderr": b""}, "invalid"),
            ({"stdout": b"", "stderr": b"Traceback\nNo sandbox\n"}, "No sandbox"),
            ({"stdout": b"", "stderr": b""}, "exit 0"),
        ):
            with self.assertRaisesRegex(exception.BackendError, reason) as caught:
                self.extend(**result)
            self.assertFalse(caught.exception.final)

    def test_program_that_hangs_is_an_unreachable_backend(self):
        expired = subprocess.TimeoutExpired("x", 1)
        with (
            mock.patch.object(subprocess, "run", side_effect=expired),
            self.assertRaisesRegex(exception.BackendUnreachable, r"Ceph reports: 1 full osd\(s\)"),
        ):
            self.resizing.extend("volumes", "attachd-x", 2**31)

    def test_size_that_ceph_refuses_is_final_if_it_is_too_large(self):
        answer = json.dumps({"errno": errno.EINVAL, "error": "invalid"}).encode()
        for size, final in ((2**30, False), (resizing.MAX_BYTES + 2**30, True)):
            with self.assertRaises(exception.BackendError) as caught:
                self.extend(stdout=answer, size_bytes=size)
            self.assertEqual(final, caught.exception.final)

    def test_taken_over_manager_starts_no_program(self):
        refuse = mock.Mock(side_effect=exception.BackendError("Another process has taken over."))
        with (
            base.ownership(refuse),
            mock.patch.object(subprocess, "run") as run,
            self.assertRaisesRegex(exception.BackendError, "taken over"),
        ):
            self.resizing.extend("volumes", "attachd-x", 2**31)
        run.assert_not_called()
