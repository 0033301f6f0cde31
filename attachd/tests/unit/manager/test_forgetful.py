# SPDX-License-Identifier: Apache-2.0
"""A flow without a journal still runs, fails and reverts as one with it."""

import types
import unittest
from unittest import mock

from oslo_utils import uuidutils
from taskflow import engines, exceptions, storage, task
from taskflow.patterns import linear_flow
from taskflow.persistence import models
from taskflow.persistence.backends import impl_memory

from attachd.manager import forgetful


class _Give(task.Task):
    default_provides = "given"

    def __init__(self, undone):
        super().__init__()
        self._undone = undone

    def execute(self):
        return {"shelf": 3}

    def revert(self, result, **_flow):
        self._undone.append(result)
        return True


class _Break(task.Task):
    def execute(self, given):
        raise RuntimeError(f"broke {given['shelf']}")

    def revert(self, **_flow):
        return False


def _name(kind):
    return f"{kind.__module__}.{kind.__name__}"


def _engine(backend, *tasks):
    return engines.load(
        linear_flow.Flow("flow").add(*tasks),
        engine="serial",
        backend=backend,
        flow_detail=models.FlowDetail("flow", uuidutils.generate_uuid()),
    )


class ForgetfulTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = forgetful.Forgetful()

    def test_results_of_a_flow_are_there_when_it_has_ended(self):
        engine = _engine(self.backend, _Give([]))
        engine.run()
        self.assertEqual({"given": {"shelf": 3}}, engine.storage.fetch_all())

    def test_a_failed_flow_is_reverted_with_its_results_and_tells_the_cause(self):
        undone = []
        engine = _engine(self.backend, _Give(undone), _Break())
        with self.assertRaisesRegex(RuntimeError, "broke 3"):
            engine.run()
        self.assertEqual([{"shelf": 3}], undone)
        self.assertIs(True, engine.storage.get_revert_result(_name(_Give)))
        self.assertIs(False, engine.storage.get_revert_result(_name(_Break)))

    def test_flows_that_share_it_know_nothing_of_each_other(self):
        first, second = (_engine(self.backend, _Give([])) for _ in range(2))
        first.run()
        self.assertEqual({}, second.storage.fetch_all())
        second.run()
        self.assertEqual({"given": {"shelf": 3}}, second.storage.fetch_all())

    def test_nothing_can_be_fetched_from_it(self):
        connection = self.backend.get_connection()
        self.assertIs(self.backend, connection.backend)
        for fetch in (connection.get_logbook, connection.get_flow_details):
            with self.assertRaises(exceptions.NotFound):
                fetch("anything")

    def test_taskflow_makes_no_memory_of_its_own_beside_it(self):
        with mock.patch.object(impl_memory, "MemoryBackend", side_effect=AssertionError):
            _engine(self.backend, _Give([])).run()


class UnburdenTest(unittest.TestCase):
    def _engine(self, *tasks):
        made = _engine(forgetful.Forgetful(), *tasks)
        forgetful.unburden(made.storage)
        return made

    def test_taskflow_still_has_what_is_put_out_of_action(self):
        notes = _engine(forgetful.Forgetful(), _Give([])).storage
        self.assertTrue(hasattr(notes._lock, "read_lock"), "taskflow has changed")
        self.assertTrue(hasattr(notes._lock, "write_lock"), "taskflow has changed")
        for name in forgetful._SAVERS:
            self.assertTrue(callable(getattr(storage.Storage, name).__wrapped__), name)

    def test_no_lock_is_taken_and_nothing_is_tried_twice(self):
        made = self._engine(_Give([]))
        with (
            mock.patch("fasteners.ReaderWriterLock.read_lock", side_effect=AssertionError),
            mock.patch("fasteners.ReaderWriterLock.write_lock", side_effect=AssertionError),
            mock.patch("tenacity.Retrying.__call__", side_effect=AssertionError),
        ):
            made.run()
        self.assertEqual({"given": {"shelf": 3}}, made.storage.fetch_all())

    def test_a_flow_runs_and_provides(self):
        made = self._engine(_Give([]))
        made.run()
        self.assertEqual({"given": {"shelf": 3}}, made.storage.fetch_all())

    def test_a_flow_reverts(self):
        undone = []
        made = self._engine(_Give(undone), _Break())
        with self.assertRaisesRegex(RuntimeError, "broke 3"):
            made.run()
        self.assertEqual([{"shelf": 3}], undone)
        self.assertIs(True, made.storage.get_revert_result(_name(_Give)))

    def test_where_taskflow_has_other_names_its_own_way_is_kept(self):
        notes = types.SimpleNamespace()
        with mock.patch.object(forgetful, "_SAVERS", ("_unknown_saver",)):
            forgetful.unburden(notes)
        self.assertFalse(hasattr(notes, "_lock"))
        self.assertFalse(hasattr(notes, "_unknown_saver"))
