# SPDX-License-Identifier: Apache-2.0
"""Flows that create, copy, delete and extend: calls of the driver, and reverts."""

import unittest

from attachd.drivers.base import Export, VolumeRef
from attachd.manager import flow_runner
from attachd.manager.flows import volume
from attachd.tests.fixtures.backends import RecordingDriver, without_abilities

VOLUME = VolumeRef("volume", 2, {"lun": 1})
OTHERS = [Export("other", {"host": "i"})]


class CreateFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def test_create_flow_provides_driver_result(self):
        self.assertEqual(
            {"lun": 1}, flow_runner.run(volume.build_create(self.driver, VOLUME), {})["answer"]
        )
        self.assertEqual({"volume": 2}, self.driver.sizes())

    def test_copy_flow_passes_source_and_reverts_like_create(self):
        source = VolumeRef("source", 1)
        flow = volume.build_copy(self.driver, VOLUME, source)
        self.assertEqual({"lun": 1}, flow_runner.run(flow, {})["answer"])
        self.assertEqual(
            (VOLUME, source),
            (self.driver.driver_calls[0].volume, self.driver.driver_calls[0].source),
        )
        with self.driver.failing("clone"), self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(volume.build_copy(self.driver, VOLUME, source), {})
        self.assertTrue(failed.exception.clean)
        self.assertEqual(["clone", "clone", "delete"], self.driver.methods)

    def test_copy_flow_of_driver_without_clone_is_refused_finally(self):
        plain = without_abilities(self.driver)
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(volume.build_copy(plain, VOLUME, VolumeRef("source", 1)), {})
        self.assertTrue(failed.exception.cause.final)
        self.assertIn("cannot clone", str(failed.exception.cause))

    def test_create_flow_failure_deletes_volume(self):
        with self.driver.failing("create"), self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(volume.build_create(self.driver, VOLUME), {})
        self.assertTrue(failed.exception.clean)
        self.assertEqual(["create", "delete"], self.driver.methods)

    def test_create_flow_with_failed_delete_is_not_clean_and_keeps_cause(self):
        with (
            self.driver.failing("create", "delete"),
            self.assertRaises(flow_runner.FlowFailed) as failed,
        ):
            flow_runner.run(volume.build_create(self.driver, VOLUME), {})
        self.assertFalse(failed.exception.clean)
        self.assertIn("backend failed", str(failed.exception.cause))


class DeleteFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def test_delete_flow_passes_volume_to_driver(self):
        flow_runner.run(volume.build_delete(self.driver, VOLUME), {})
        self.assertEqual(
            [("delete", VOLUME)],
            [(driver_call.method, driver_call.volume) for driver_call in self.driver.driver_calls],
        )

    def test_delete_flow_failure_does_not_create_again(self):
        with self.driver.failing("delete"), self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(volume.build_delete(self.driver, VOLUME), {})
        self.assertFalse(failed.exception.clean)
        self.assertIn("backend failed", str(failed.exception.cause))
        self.assertEqual(["delete"], self.driver.methods)


class ExtendFlowTest(unittest.TestCase):
    """One task."""

    def setUp(self):
        super().setUp()
        self.driver = RecordingDriver()

    def test_extend_flow_passes_all_arguments_to_driver(self):
        flow_runner.run(volume.build_extend(self.driver, VOLUME, 5, OTHERS), {})
        (handed,) = self.driver.driver_calls
        self.assertEqual(("extend", VOLUME), (handed.method, handed.volume))
        self.assertEqual((5, OTHERS), (handed.size_gib, handed.others))

    def test_extend_flow_of_driver_without_online_extend_needs_detached_volume(self):
        plain = without_abilities(self.driver)
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(volume.build_extend(plain, VOLUME, 5, OTHERS), {})
        self.assertTrue(failed.exception.cause.final)
        self.assertIn("detach it", str(failed.exception.cause))
        self.assertEqual([], self.driver.methods)
        flow_runner.run(volume.build_extend(plain, VOLUME, 5, []), {})
        self.assertEqual(["extend"], self.driver.methods)

    def test_extend_flow_failure_does_not_shrink(self):
        with self.driver.failing("extend"), self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run(volume.build_extend(self.driver, VOLUME, 5, OTHERS), {})
        self.assertFalse(failed.exception.clean)
        self.assertIn("backend failed", str(failed.exception.cause))
        self.assertEqual(["extend"], self.driver.methods)
