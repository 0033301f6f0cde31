# SPDX-License-Identifier: Apache-2.0
"""What a flow's end is reported as."""

import contextlib
import gc
import unittest
from unittest import mock
import weakref

from taskflow import task
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.manager import flow_runner


class _Step(task.Task):
    """Does what it is told; ``undone`` is what its revert answers or raises."""

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

    def test_a_flow_that_ends_well_returns_all_that_its_tasks_provided(self):
        self.assertEqual({"a": "a done", "b": "b done"}, _run(_Step("a"), _Step("b")))

    def test_a_failed_flow_names_the_cause_itself(self):
        cause = exception.BackendError("no room", final=True)
        self.assertIs(cause, self._failure(_Step("a"), _Step("b", cause)).cause)

    def test_it_is_clean_when_every_task_that_began_says_it_is_undone(self):
        self.assertTrue(self._failure(_Step("a"), _Step("b", ValueError())).clean)

    def test_a_task_that_did_not_begin_does_not_count(self):
        failed = self._failure(_Step("a", ValueError()), _Step("b", undone=False))
        self.assertTrue(failed.clean)

    def test_it_is_not_clean_when_the_failed_task_may_have_left_something(self):
        self.assertFalse(self._failure(_Step("a", ValueError(), undone=False)).clean)

    def test_it_is_not_clean_when_an_earlier_task_was_not_undone(self):
        failed = self._failure(_Step("a", undone=False), _Step("b", ValueError()))
        self.assertFalse(failed.clean)

    def test_a_revert_that_raises_is_never_clean_and_ends_the_reverting(self):
        cause, first = ValueError("cause"), _Step("a")
        with (
            mock.patch.object(first, "revert") as revert,
            self.assertLogs(flow_runner.LOG.logger, "ERROR") as logged,
        ):
            failed = self._failure(first, _Step("b", undone=KeyError("x")), _Step("c", cause))
        self.assertEqual((cause, False), (failed.cause, failed.clean))
        revert.assert_not_called()
        self.assertIn("Task b: revert failed", logged.output[-1])

    def test_tasks_are_reverted_from_the_last_to_the_first(self):
        steps = [_Step("a"), _Step("b"), _Step("c", ValueError())]
        seen = mock.Mock()
        with contextlib.ExitStack() as stack:
            for each in steps:
                revert = mock.Mock(return_value=True)
                seen.attach_mock(revert, each.name)
                stack.enter_context(mock.patch.object(each, "revert", revert))
            self._failure(*steps)
        self.assertEqual(["c", "b", "a"], [call[0] for call in seen.mock_calls])
        results = [call.kwargs["result"] for call in seen.mock_calls]
        self.assertIsInstance(results[0], failure.Failure)
        self.assertEqual(["b done", "a done"], results[1:])
        self.assertEqual(
            [{"c": results[0]}] * 3, [c.kwargs["flow_failures"] for c in seen.mock_calls]
        )

    def test_a_task_gets_what_the_ones_before_it_have_provided(self):
        flow = linear_flow.Flow("flow").add(_Pair(), _Sum(rebind={"left": "one", "right": "two"}))
        self.assertEqual({"one": 1, "two": 2, "sum": 13}, flow_runner.run(flow, {"more": 10}))

    def test_what_nobody_provides_fails_the_task_that_needs_it(self):
        flow = linear_flow.Flow("flow").add(_Step("a"), _Sum())
        with self.assertRaises(flow_runner.FlowFailed) as caught:
            flow_runner.run(flow, {"left": 1})
        self.assertIsInstance(caught.exception.cause, KeyError)
        self.assertTrue(caught.exception.clean)

    def test_an_exit_is_no_failure_of_a_task(self):
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
    """Provides what the store tells it to, or breaks; notes in ``ran`` that it has run."""

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


class RunAgainTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.ran = []

    def _run(self, order):
        return flow_runner.run_cached(_obeying, {"order": order, "ran": self.ran})

    def test_each_run_sees_its_own_store_and_not_the_last_ones(self):
        answers = [{"answer": order} for order in (1, 2, 3)]
        self.assertEqual(answers, [self._run(order) for order in (1, 2, 3)])

    def test_the_flow_is_built_once_for_all_runs(self):
        for _ in range(3):
            self._run(1)
        self.assertEqual(1, len(set(self.ran)))

    def test_runs_at_the_same_time_do_not_meet(self):
        def run_inside():
            orders.append(self._run("inner"))
            return "outer"

        orders = []
        inside = mock.Mock(**{"append.side_effect": lambda _task: run_inside()})
        told = flow_runner.run_cached(_obeying, {"order": "outer", "ran": inside})
        self.assertEqual({"answer": "outer"}, told)
        self.assertEqual([{"answer": "inner"}], orders)

    def test_what_failed_is_told_and_the_next_run_is_not_its_heir(self):
        cause = ValueError("bug")
        with self.assertRaises(flow_runner.FlowFailed) as failed:
            self._run(cause)
        self.assertIs(cause, failed.exception.cause)
        self.assertTrue(failed.exception.clean)
        self.assertEqual({"answer": 1}, self._run(1))

    def test_nothing_of_a_run_is_kept_by_the_flow(self):
        class Secret:
            pass

        secret = Secret()
        kept = weakref.ref(secret)
        self._run(secret)
        del secret
        gc.collect()
        self.assertIsNone(kept())


class ReasonTest(unittest.TestCase):
    def test_our_own_errors_speak_for_themselves(self):
        self.assertEqual(
            "Backend error: No room.", flow_runner.reason(exception.BackendError("No room"))
        )

    def test_an_unexpected_error_is_named(self):
        said = flow_runner.reason(KeyError("hidden"))
        self.assertIn("KeyError", said)
        self.assertNotIn("hidden", said)

    def test_a_reason_fits_into_its_column(self):
        self.assertLess(len(flow_runner.reason(exception.BackendError("x" * 5000))), 1023)
