# SPDX-License-Identifier: Apache-2.0
"""What a flow's end is reported as."""

import unittest
from unittest import mock

from taskflow import storage, task
from taskflow.patterns import linear_flow

from attachd import exception
from attachd.manager import engine


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
    return engine.run(linear_flow.Flow("flow").add(*steps), {})


class RunTest(unittest.TestCase):
    def _failure(self, *steps):
        with self.assertRaises(engine.Failed) as caught:
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

    def test_a_revert_that_raises_hides_the_cause_but_is_never_clean(self):
        failed = self._failure(_Step("a", undone=KeyError("x")), _Step("b", ValueError("cause")))
        self.assertFalse(failed.clean)


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
        self.addCleanup(engine._idle.pop, _obeying, None)

    def _run(self, order):
        return engine.run_again(_obeying, {"order": order, "ran": self.ran})["answer"]

    def test_each_run_sees_its_own_store_and_not_the_last_ones(self):
        self.assertEqual([1, 2, 3], [self._run(order) for order in (1, 2, 3)])

    def test_the_flow_is_built_once_for_runs_one_after_the_other(self):
        for _ in range(3):
            self._run(1)
        self.assertEqual(1, len(set(self.ran)))

    def test_runs_at_the_same_time_do_not_meet(self):
        def run_inside():
            orders.append(self._run("inner"))
            return "outer"

        orders = []
        inside = mock.Mock(**{"append.side_effect": lambda _task: run_inside()})
        self.assertEqual(
            "outer", engine.run_again(_obeying, {"order": "outer", "ran": inside})["answer"]
        )
        self.assertEqual(["inner"], orders)

    def test_what_failed_is_told_and_does_not_run_again(self):
        cause = ValueError("bug")
        with self.assertRaises(engine.Failed) as failed:
            self._run(cause)
        self.assertIs(cause, failed.exception.cause)
        self.assertTrue(failed.exception.clean)
        self.assertEqual(1, self._run(1))
        self.assertEqual(2, len(set(self.ran)))

    def test_nothing_of_a_run_is_kept_for_the_next_one(self):
        self._run("secret")
        (ready,) = engine._idle[_obeying]
        self.assertEqual({"order": None, "ran": None}, ready.engine.storage.fetch_all())


class _Slow(task.Task):
    def execute(self):
        for done in (0.25, 0.5):
            self.update_progress(done)

    def revert(self, **_flow):
        return True


class ProgressTest(unittest.TestCase):
    def test_a_task_that_tells_how_far_it_is_runs_as_others_do(self):
        self.assertEqual({}, _run(_Slow()))

    def test_progress_is_noted_by_the_method_that_is_put_out_of_action(self):
        self.assertTrue(callable(storage.Storage.set_task_progress), "taskflow has changed")
        with mock.patch.object(storage.Storage, "set_task_progress") as noted:
            _run(_Slow())
        noted.assert_not_called()


class ReasonTest(unittest.TestCase):
    def test_our_own_errors_speak_for_themselves(self):
        self.assertEqual(
            "Backend error: No room.", engine.reason(exception.BackendError("No room"))
        )

    def test_an_unexpected_error_is_named(self):
        said = engine.reason(KeyError("hidden"))
        self.assertIn("KeyError", said)
        self.assertNotIn("hidden", said)

    def test_a_reason_fits_into_its_column(self):
        self.assertLess(len(engine.reason(exception.BackendError("x" * 5000))), 1023)
