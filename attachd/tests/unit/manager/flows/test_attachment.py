# SPDX-License-Identifier: Apache-2.0
"""Flows that grant and revoke access: calls of the driver, and reverts."""

import unittest
from unittest import mock

from attachd import exception
from attachd.drivers.base import Export, VolumeRef, WithSecrets
from attachd.manager import flow_runner
from attachd.manager.flows import attachment
from attachd.tests.fixtures.backends import RecordingDriver

VOLUME = VolumeRef("volume", 2, {"lun": 1})
EXPORT = Export("attachment", {"host": "h"})
OTHERS = [Export("other", {"host": "i"})]


class AttachFlowTest(unittest.TestCase):
    """Grant, then record."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()
        self.save = mock.Mock(return_value=None)
        self.must_stay = mock.Mock(return_value=False)
        self.check_host = mock.Mock(return_value=None)

    def _run(self, **values):
        request = attachment.GrantRequest(
            self.driver,
            VOLUME,
            EXPORT,
            lambda: OTHERS,
            self.save,
            self.must_stay,
            self.check_host,
            **values,
        )
        return flow_runner.run_cached(attachment.build_attach, {"request": request})

    def _fail(self, **values):
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            self._run(**values)
        return failed.exception

    def test_attach_flow_saves_and_provides_answer(self):
        provided = self._run()["answer"]
        self.save.assert_called_once_with(provided)
        self.assertEqual("fake", provided["driver_volume_type"])
        self.assertEqual(["grant"], self.driver.methods)
        self.must_stay.assert_not_called()

    def test_attach_flow_of_fenced_host_calls_no_driver(self):
        self.check_host.side_effect = exception.HostFenced(host="h", since="now", reason="dead")
        failed = self._fail()
        self.assertIs(self.check_host.side_effect, failed.cause)
        self.assertTrue(failed.clean)
        self.assertEqual([], self.driver.methods)
        self.assertTrue(self._fail(repeated=True).clean)
        self.assertEqual(["revoke"], self.driver.methods)

    def test_attach_flow_with_failed_save_revokes_and_spares_others(self):
        self.save.side_effect = exception.Conflict(reason="lost")
        failed = self._fail()
        self.assertIs(self.save.side_effect, failed.cause)
        self.assertTrue(failed.clean)
        self.assertEqual(["grant", "revoke"], self.driver.methods)
        undone = self.driver.driver_calls[1]
        self.assertEqual((VOLUME, EXPORT, OTHERS), (undone.volume, undone.export, undone.others))

    def test_attach_flow_with_failed_save_revokes_with_new_secrets(self):
        self.save.side_effect = exception.Conflict(reason="lost")
        answer = WithSecrets({"driver_volume_type": "fake", "data": {}}, {"lun": 5})
        with mock.patch.object(self.driver, "grant", return_value=answer):
            self._fail()
        self.save.assert_called_once_with(answer)
        (undone,) = self.driver.driver_calls
        self.assertEqual({"lun": 5}, undone.export.provider_secrets)

    def test_attach_flow_with_final_grant_failure_does_not_revoke(self):
        with self.driver.failing("grant", final=True):
            self.assertTrue(self._fail().clean)
        self.assertEqual(["grant"], self.driver.methods)
        self.save.assert_not_called()

    def test_attach_flow_repeated_with_final_grant_failure_revokes(self):
        with self.driver.failing("grant", final=True):
            self.assertTrue(self._fail(repeated=True).clean)
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_attach_flow_with_doubtful_grant_failure_revokes(self):
        with self.driver.failing("grant"):
            self.assertTrue(self._fail().clean)
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_attach_flow_with_failed_revoke_is_not_clean_and_keeps_cause(self):
        with self.driver.failing("revoke"):
            self.save.side_effect = exception.Conflict(reason="lost")
            failed = self._fail()
        self.assertFalse(failed.clean)
        self.assertIs(self.save.side_effect, failed.cause)

    def test_attach_flow_in_doubt_is_not_clean_on_storage_without_the_volume(self):
        """The volume, and what was granted, may be on storage that is away."""
        with mock.patch.object(self.driver, "has_volume", return_value=False):
            for repeated, final in ((False, False), (True, True)):
                with self.driver.failing("grant", final=final):
                    self.assertFalse(self._fail(repeated=repeated).clean)
        self.assertEqual(["grant", "grant"], self.driver.methods)

    def test_attach_flow_that_must_stay_granted_does_not_revoke(self):
        self.must_stay.return_value = True
        self.save.side_effect = exception.Conflict(reason="lost")
        self.assertFalse(self._fail().clean)
        self.assertEqual(["grant"], self.driver.methods)


class DetachFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def _run(self):
        request = attachment.RevokeRequest(self.driver, VOLUME, EXPORT, OTHERS)
        return flow_runner.run_cached(attachment.build_detach, {"request": request})

    def test_detach_flow_passes_all_arguments_to_driver(self):
        self._run()
        (handed,) = self.driver.driver_calls
        self.assertEqual(("revoke", VOLUME), (handed.method, handed.volume))
        self.assertEqual((EXPORT, OTHERS), (handed.export, handed.others))

    def test_detach_flow_failure_does_not_grant_again(self):
        with self.driver.failing("revoke"), self.assertRaises(flow_runner.FlowFailed) as failed:
            self._run()
        self.assertFalse(failed.exception.clean)
        self.assertIn("backend failed", str(failed.exception.cause))
        self.assertEqual(["revoke"], self.driver.methods)
