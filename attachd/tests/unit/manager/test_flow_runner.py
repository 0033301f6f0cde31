# SPDX-License-Identifier: Apache-2.0
"""Results and failures of flows."""

import contextlib
import gc
import unittest
from unittest import mock
import weakref

from taskflow import engines, states, task
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.manager import flow_runner


class _Step(task.Task):
    """A task with a given result; ``undone`` is what its revert returns or raises."""

    def __init__(self, name, error=None, undone=True):
        super().__init__(name, provides=name)
        self._error = error
        self._undone = undone

    def execute(self):
        if self._error is not None:
            raise self._error
        return f"{self.name} done"

    def revert(self, **_flow):
        if isinstance(self._undone, Exception):
            raise self._undone
        return self._undone


def _run(*steps):
    return flow_runner.run(linear_flow.Flow("flow").add(*steps), {})


class RunTest(unittest.TestCase):
    def _failure(self, *steps):
        with self.assertRaises(flow_runner.FlowFailed) as caught:
            _run(*steps)
        return caught.exception

    def test_run_returns_all_that_tasks_provided(self):
        self.assertEqual({"a": "a done", "b": "b done"}, _run(_Step("a"), _Step("b")))

    def test_run_failure_has_cause_of_task(self):
        cause = exception.BackendError("no room", final=True)
        self.assertIs(cause, self._failure(_Step("a"), _Step("b", cause)).cause)

    def test_run_failure_is_clean_if_all_started_tasks_are_reverted(self):
        self.assertTrue(self._failure(_Step("a"), _Step("b", ValueError())).clean)

    def test_run_failure_ignores_tasks_not_started(self):
        failed = self._failure(_Step("a", ValueError()), _Step("b", undone=False))
        self.assertTrue(failed.clean)

    def test_run_failure_is_not_clean_if_failed_task_may_have_effect(self):
        self.assertFalse(self._failure(_Step("a", ValueError(), undone=False)).clean)

    def test_run_failure_is_not_clean_if_earlier_task_is_not_reverted(self):
        failed = self._failure(_Step("a", undone=False), _Step("b", ValueError()))
        self.assertFalse(failed.clean)

    def test_run_failure_with_raising_revert_is_not_clean_and_stops(self):
        cause, first = ValueError("cause"), _Step("a")
        with (
            mock.patch.object(first, "revert") as revert,
            self.assertLogs(flow_runner.LOG.logger, "ERROR") as logged,
        ):
            failed = self._failure(first, _Step("b", undone=KeyError("x")), _Step("c", cause))
        self.assertEqual((cause, False), (failed.cause, failed.clean))
        revert.assert_not_called()
        self.assertIn("Task b: revert failed", logged.output[-1])

    def test_run_failure_reverts_from_last_to_first(self):
        steps = [_Step("a"), _Step("b"), _Step("c", ValueError())]
        seen = mock.Mock()
        with contextlib.ExitStack() as stack:
            for step in steps:
                revert = mock.Mock(return_value=True)
                seen.attach_mock(revert, step.name)
                stack.enter_context(mock.patch.object(step, "revert", revert))
            self._failure(*steps)
        self.assertEqual(["c", "b", "a"], [call[0] for call in seen.mock_calls])
        results = [call.kwargs["result"] for call in seen.mock_calls]
        self.assertIsInstance(results[0], failure.Failure)
        self.assertEqual(["b done", "a done"], results[1:])
        self.assertEqual(
            [{"c": results[0]}] * 3, [c.kwargs["flow_failures"] for c in seen.mock_calls]
        )

    def test_run_passes_provided_values_to_later_tasks(self):
        flow = linear_flow.Flow("flow").add(_Pair(), _Sum(rebind={"left": "one", "right": "two"}))
        self.assertEqual({"one": 1, "two": 2, "sum": 13}, flow_runner.run(flow, {"more": 10}))

    def test_run_task_with_missing_argument_fails(self):
        flow = linear_flow.Flow("flow").add(_Step("a"), _Sum())
        with self.assertRaises(flow_runner.FlowFailed) as caught:
            flow_runner.run(flow, {"left": 1})
        self.assertIsInstance(caught.exception.cause, KeyError)
        self.assertTrue(caught.exception.clean)

    def test_run_exit_is_not_a_task_failure(self):
        self.assertRaises(SystemExit, _run, _Step("a", SystemExit(1)))


class _Pair(task.Task):
    default_provides = ("one", "two")

    def execute(self):
        return 1, 2


class _Sum(task.Task):
    default_provides = "sum"

    def execute(self, left, right, more=0):
        return left + right + more

    def revert(self, **_flow):
        return True


class _Obey(task.Task):
    """A task that returns or raises what the store has, and adds its run to ``ran``."""

    default_provides = "answer"

    def execute(self, order, ran):
        ran.append(self)
        if isinstance(order, Exception):
            raise order
        return order

    def revert(self, **_flow):
        return True


def _obeying():
    return linear_flow.Flow("obeying").add(_Obey())


class RunCachedTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.ran = []

    def _run(self, order):
        return flow_runner.run_cached(_obeying, {"order": order, "ran": self.ran})

    def test_run_cached_has_separate_store_per_run(self):
        answers = [{"answer": order} for order in (1, 2, 3)]
        self.assertEqual(answers, [self._run(order) for order in (1, 2, 3)])

    def test_run_cached_builds_flow_once(self):
        for _ in range(3):
            self._run(1)
        self.assertEqual(1, len(set(self.ran)))

    def test_run_cached_in_parallel_does_not_mix_stores(self):
        def run_inside():
            orders.append(self._run("inner"))
            return "outer"

        orders = []
        inside = mock.Mock(**{"append.side_effect": lambda _task: run_inside()})
        result = flow_runner.run_cached(_obeying, {"order": "outer", "ran": inside})
        self.assertEqual({"answer": "outer"}, result)
        self.assertEqual([{"answer": "inner"}], orders)

    def test_run_cached_failure_does_not_affect_next_run(self):
        cause = ValueError("bug")
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            self._run(cause)
        self.assertIs(cause, failed.exception.cause)
        self.assertTrue(failed.exception.clean)
        self.assertEqual({"answer": 1}, self._run(1))

    def test_run_cached_does_not_take_values_of_earlier_run(self):
        self._run(1)
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            flow_runner.run_cached(_obeying, {})
        self.assertIsInstance(failed.exception.cause, KeyError)

    def test_run_cached_keeps_no_reference_to_store(self):
        class Secret:
            pass

        secret = Secret()
        kept = weakref.ref(secret)
        self._run(secret)
        del secret
        gc.collect()
        self.assertIsNone(kept())


class LinearEngineTest(unittest.TestCase):
    def test_engine_is_run_by_taskflow(self):
        flow = linear_flow.Flow("flow").add(_Pair(), _Sum(rebind={"left": "one", "right": "two"}))
        self.assertEqual(
            {"more": 10, "one": 1, "two": 2, "sum": 13},
            engines.run(flow, store={"more": 10}, engine=flow_runner.ENGINE),
        )

    def test_engine_storage_has_state_of_run(self):
        for error, undone, expected in (
            (None, True, states.SUCCESS),
            (ValueError("bug"), True, states.REVERTED),
            (ValueError("bug"), False, states.FAILURE),
        ):
            flow = linear_flow.Flow("flow").add(_Step("a", error, undone))
            engine = engines.load(flow, engine=flow_runner.ENGINE)
            self.assertEqual(states.PENDING, engine.storage.get_flow_state())
            with self.subTest(expected), contextlib.suppress(ValueError):
                engine.run()
            self.assertEqual(expected, engine.storage.get_flow_state())

    def test_engine_after_reset_has_no_values(self):
        engine = engines.load(linear_flow.Flow("flow").add(_Step("a")), engine=flow_runner.ENGINE)
        engine.run()
        engine.reset()
        self.assertEqual({}, engine.storage.fetch_all())
        self.assertEqual(states.PENDING, engine.storage.get_flow_state())

    def test_engine_does_not_suspend(self):
        engine = engines.load(linear_flow.Flow("flow"), engine=flow_runner.ENGINE)
        self.assertRaises(NotImplementedError, engine.suspend)


class ReasonTest(unittest.TestCase):
    def test_reason_of_attachd_error_is_its_text(self):
        self.assertEqual(
            "Backend error: No room.", flow_runner.reason(exception.BackendError("No room"))
        )

    def test_reason_of_unforeseen_error_is_its_type(self):
        said = flow_runner.reason(KeyError("hidden"))
        self.assertIn("KeyError", said)
        self.assertNotIn("hidden", said)

    def test_reason_is_truncated_to_column_length(self):
        self.assertLess(len(flow_runner.reason(exception.BackendError("x" * 5000))), 1023)
