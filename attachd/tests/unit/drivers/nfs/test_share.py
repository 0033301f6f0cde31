# SPDX-License-Identifier: Apache-2.0
"""Mounts of a share, and the use of processes; the processes are fakes, and nothing is mounted."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers.nfs import file_process, mounts, share
from attachd.tests.fixtures import lifetime

NAME = "storage-1:/volumes"


class FakeProcess:
    """Answers with the folder, or as the test says."""

    made = ()

    def __init__(self, folder):
        self.folder, self.error, self.ends = folder, None, True
        FakeProcess.made = (*FakeProcess.made, self)

    def call(self, method, *arguments, timeout, buffer=None):
        if self.error is not None:
            raise self.error
        return [self, method, arguments, timeout]

    def end(self):
        return self.ends

    def has_ended(self):
        return self.ends


class ShareTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = lifetime.temp_dir(self).resolve()
        FakeProcess.made = ()
        self.enterContext(mock.patch.object(share, "FileProcess", FakeProcess))
        self.is_mounted = self.enterContext(mock.patch.object(mounts, "is_mounted"))
        self.mount = self.enterContext(mock.patch.object(mounts, "mount"))
        self.unmount = self.enterContext(mock.patch.object(mounts, "unmount"))

    def share(self, mount_point=None):
        return share.Share(NAME, mount_point, self.folder, "softerr", 7.0)

    def failing(self, error):
        """Return a share with one idle process, whose next call fails."""
        found = self.share()
        found.call("sizes")
        FakeProcess.made[0].error = error
        return found

    def test_first_call_mounts_share_at_name_of_os_brick(self):
        self.is_mounted.return_value = False
        process, *request = self.share().call("extend", "volume", 2)
        self.assertEqual(["extend", ("volume", 2), 7.0], request)
        path = self.folder / "6f9b08aba9e90a058f0897bea7675373"  # md5sum of the name
        self.assertEqual(path, process.folder)
        self.mount.assert_called_once_with(NAME, path, "softerr", 7.0)

    def test_mounted_share_is_not_mounted_again(self):
        self.share().call("sizes")
        self.mount.assert_not_called()

    def test_process_is_used_again_also_after_errors(self):
        found = self.failing(exception.BackendError("Volume is missing.", final=True))
        with self.assertRaisesRegex(exception.BackendError, "missing") as raised:
            found.call("sizes")
        self.assertNotIsInstance(raised.exception, exception.BackendUnreachable)
        invalid = exception.InvalidInput(field="ref", value={}, reason="It is missing.")
        FakeProcess.made[0].error = invalid
        self.assertRaises(exception.InvalidInput, found.call, "get_manageable", "volume", {})
        FakeProcess.made[0].error = None
        found.call("sizes")
        self.assertEqual(1, len(FakeProcess.made))

    def at_once(self, found, number):
        """Make so many calls of which each begins before the others end."""
        inner = FakeProcess.call

        def call(process, *arguments, **options):
            if number > len(FakeProcess.made):
                found.call("sizes")
            return inner(process, *arguments, **options)

        with mock.patch.object(FakeProcess, "call", call):
            found.call("sizes")

    def test_processes_of_burst_are_kept_up_to_limit(self):
        found = self.share()
        with mock.patch.object(FakeProcess, "end", autospec=True, return_value=True) as ended:
            self.at_once(found, share._MAX_IDLE + 2)
            self.assertEqual(2, ended.call_count)
            FakeProcess.made = FakeProcess.made[: share._MAX_IDLE]
            self.at_once(found, 0)
        self.assertEqual(share._MAX_IDLE, len(FakeProcess.made))

    def test_process_that_no_call_needs_is_ended(self):
        found, now = self.share(), [1000.0]
        with (
            mock.patch.object(share.time, "monotonic", lambda: now[0]),
            mock.patch.object(FakeProcess, "end", autospec=True, return_value=True) as ended,
        ):
            self.at_once(found, 3)
            now[0] += share._IDLE_SECONDS / 2
            found.call("sizes")
            self.assertEqual(0, ended.call_count)
            now[0] += share._IDLE_SECONDS * 3 / 4
            found.call("sizes")
            self.assertEqual(2, ended.call_count)
            used = FakeProcess.made[0]
            self.assertNotIn(used, [call.args[0] for call in ended.call_args_list])

    def test_call_of_share_that_is_away_names_it_and_its_options(self):
        found = self.failing(file_process.Unusable("It did not answer within 7 s."))
        with self.assertRaisesRegex(
            exception.BackendUnreachable, f"{NAME}.*within 7 s.*nfs_share.*nfs_timeout"
        ) as raised:
            found.call("sizes")
        self.assertFalse(raised.exception.final)
        found.call("sizes")
        self.assertEqual(2, len(FakeProcess.made))

    def test_calls_are_refused_while_process_hangs_in_kernel(self):
        found = self.failing(file_process.Unusable("It did not answer within 7 s."))
        FakeProcess.made[0].ends = False
        for message in ("did not answer", "still hangs", "still hangs"):
            with self.assertRaisesRegex(exception.BackendUnreachable, message):
                found.call("sizes")
        self.assertEqual(1, len(FakeProcess.made))
        FakeProcess.made[0].ends = True
        found.call("sizes")

    def test_share_that_is_not_mounted_where_it_should_be_names_option(self):
        self.is_mounted.return_value = False
        with self.assertRaisesRegex(exception.BackendUnreachable, "nfs_mount_point"):
            self.share(self.folder / "mnt").call("sizes")
        self.mount.assert_not_called()
        self.assertEqual((), FakeProcess.made)

    def test_share_that_cannot_be_mounted_raises_reason(self):
        self.is_mounted.return_value = False
        self.mount.side_effect = exception.BackendUnreachable("mount.nfs: access denied")
        with self.assertRaisesRegex(exception.BackendUnreachable, f"{NAME}.*access denied"):
            self.share().call("sizes")

    def test_stale_mount_is_replaced(self):
        stale = file_process.Unusable("[Errno 116] Stale file handle.", is_stale=True)
        found = self.failing(stale)
        self.assertRaises(exception.BackendUnreachable, found.call, "sizes")
        self.unmount.assert_called_once_with(FakeProcess.made[0].folder, 7.0, "--lazy")

    def test_stale_mount_of_others_is_left_to_them(self):
        found = self.share(self.folder / "mnt")
        found.call("sizes")
        FakeProcess.made[0].error = file_process.Unusable("stale", is_stale=True)
        self.assertRaises(exception.BackendUnreachable, found.call, "sizes")
        found.close()
        self.unmount.assert_not_called()

    def test_close_ends_processes_then_unmounts(self):
        found = self.share()
        found.call("sizes")
        self.unmount.side_effect = lambda *_: self.assertTrue(ended.called) or True
        with mock.patch.object(FakeProcess, "end", return_value=True) as ended:
            found.close()
        self.unmount.assert_called_once()

    def test_close_of_share_in_use_says_so(self):
        found = self.share()
        self.unmount.return_value = False
        with self.assertLogs(share.__name__, "INFO") as logged:
            found.close()
        self.assertIn("stays mounted", logged.output[0])
