# SPDX-License-Identifier: Apache-2.0
"""Real processes on a local directory: answers, refusals, time limits and deaths."""

import contextlib
import os
from pathlib import Path
import signal
import unittest

from attachd import exception
from attachd.drivers import base
from attachd.drivers.nfs import file_process
from attachd.tests.fixtures import lifetime
from attachd.tests.wait import TIMEOUT

COPY_ID = "7f4f0a56-57a4-4d6b-9f0b-7a8b6f8f1c22"
VOLUME_ID = "8f5a1d0a-94a4-4a57-9df9-6e2d6f4f7f11"


class FileProcessTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self)
        self.process = self.new_process(self.folder)
        self.call("prepare")

    def new_process(self, folder):
        process = file_process.FileProcess(folder)
        self.addCleanup(process.end)
        return process

    def call(self, *request, timeout=TIMEOUT):
        return self.process.call(*request, timeout=timeout)

    def test_calls_work_on_folder(self):
        self.call("create", VOLUME_ID, 2)
        self.assertEqual({VOLUME_ID: 2**31}, self.call("sizes"))
        self.assertEqual(2**31, (self.folder / "volumes" / VOLUME_ID).stat().st_size)

    def test_error_of_call_is_raised_and_process_goes_on(self):
        with self.assertRaisesRegex(exception.BackendError, "is missing") as raised:
            self.call("extend", VOLUME_ID, 2)
        self.assertTrue(raised.exception.final)
        self.assertEqual({}, self.call("sizes"))

    def test_invalid_reference_is_raised_and_process_goes_on(self):
        with self.assertRaisesRegex(exception.InvalidInput, "no such file") as raised:
            self.call("get_manageable", "volume", {"source-name": "disk"})
        self.assertEqual("ref", raised.exception.details["field"])
        self.assertEqual({}, self.call("sizes"))

    def test_refused_change_is_not_made_and_process_goes_on(self):
        refusal = exception.BackendUnreachable("Another process has taken over.")

        def refuse():
            raise refusal

        with base.ownership(refuse), self.assertRaises(exception.BackendUnreachable) as raised:
            self.call("create", VOLUME_ID, 2)
        self.assertIs(refusal, raised.exception)
        self.assertEqual({}, self.call("sizes"))

    def test_progress_of_copy_is_reported(self):
        self.call("create", VOLUME_ID, 1)
        with (self.folder / "volumes" / VOLUME_ID).open("r+b") as file:
            file.seek(2**29)
            file.write(b"data")
        reported = []
        with base.progress_scope(reported.append):
            self.call("clone", COPY_ID, 1, VOLUME_ID)
        self.assertEqual({VOLUME_ID, COPY_ID}, set(self.call("sizes")))
        if reported:  # a file system that clones files copies nothing
            self.assertEqual([0.5], [round(fraction, 1) for fraction in reported])

    def test_call_of_hanging_process_ends_in_time(self):
        self.signal(signal.SIGSTOP)  # stands for a request that the share does not answer
        with self.assertRaisesRegex(file_process.Unusable, "within 0.2 s"):
            self.call("sizes", timeout=0.2)  # it hangs, slow or not
        self.assertTrue(self.process.end())
        self.assertTrue(self.process.has_ended())

    def test_call_of_killed_process_is_unusable(self):
        self.signal(signal.SIGKILL)
        with self.assertRaisesRegex(file_process.Unusable, "has ended"):
            self.call("sizes")

    def test_process_ends_with_its_caller(self):
        self.process._answers.close()
        self.process._control.close()
        self.assertEqual(0, self.process._process.wait(TIMEOUT))

    def test_liveness_descriptors_are_held_during_a_call_alone(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        base.add_liveness_fd(writing)
        try:
            with base.ownership(lambda: self.assertEqual(2, self.count_holders(reading))):
                self.call("create", VOLUME_ID, 1)
        finally:
            base.remove_liveness_fd(writing)
            os.close(writing)
        self.assertEqual(b"", os.read(reading, 1))

    def count_holders(self, descriptor):
        """Count the processes of this test that have a pipe open."""
        folders = [Path(f"/proc/{number}/fd") for number in ("self", self.process._process.pid)]
        pipe = (folders[0] / f"{descriptor}").readlink()
        return sum(pipe in _open_files(folder) for folder in folders)

    def test_missing_folder_is_named(self):
        self.process = self.new_process(self.folder / "nowhere")
        with self.assertRaisesRegex(exception.BackendError, "nowhere"):
            self.call("sizes")

    def signal(self, number):
        os.kill(self.process._process.pid, number)


def _open_files(folder):
    """List the targets of links, of which one is that of the listing itself."""
    found = []
    for link in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(link.readlink())
    return found
