# SPDX-License-Identifier: Apache-2.0
"""Connects and disconnects of many hosts of one volume at the same time."""

import contextlib
import functools
import threading
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from attachd import exception
from attachd.db.attachments import attachment_store, events
from attachd.db.engine import session
from attachd.manager import attach, detach
from attachd.manager.ownership import joint_work
from attachd.manager.periodic_tasks import recovery
from attachd.periodics import Backoff
from attachd.tests import concurrency
from attachd.tests.fixtures import backends, conf_fixture, db_rows
from attachd.tests.wait import TIMEOUT, wait_until


def connector(number):
    return {"host": f"compute-{number}", "initiator": f"iqn.2000-01.org.example:{number}"}


class JointCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]

    def reserve(self, count):
        return [db_rows.add_attachment(self.volume_id)["id"] for _ in range(count)]

    def attach(self, attachment_id, number):
        return attach.attach(self.backend, attachment_id, self.volume_id, connector(number))

    def detach(self, attachment_id):
        return detach.detach(self.backend, attachment_id, self.volume_id)

    def attach_calls(self, ids):
        return [functools.partial(self.attach, *pair[::-1]) for pair in enumerate(ids)]

    def detach_calls(self, ids):
        return [functools.partial(self.detach, item) for item in ids]

    def together(self, *calls):
        """Make calls that wait for the same end of other work; return results or errors."""
        results = []
        with self.backend.lock(self.volume_id):
            caller = threading.Thread(
                target=lambda: results.extend(concurrency.run_at_once(*calls))
            )
            caller.start()
            wait_until(lambda: self.waiting() == len(calls) - 1)
        caller.join(TIMEOUT)
        self.assertEqual(len(calls), len(results))
        self.assertEqual({}, joint_work._waiting._by_path)
        return results

    @staticmethod
    def waiting():
        return sum(len(members) for members in joint_work._waiting._by_path.values())

    def states(self):
        rows = db_rows.list_attachments(self.volume_id)
        return {row["id"]: row["state"] for row in rows}

    def assert_lease_free(self):
        self.assertIsNone(db_rows.get_volume(self.volume_id)["lease_holder"])

    @contextlib.contextmanager
    def meeting(self, method, count):
        """Let calls of the driver continue when that many are in progress at the same time."""
        barrier = threading.Barrier(count, timeout=TIMEOUT)

        def script(call):
            if call.method == method:
                barrier.wait()

        with mock.patch.object(self.driver, "script", script):
            yield


class ParallelTest(JointCase):
    def test_grants_for_different_hosts_run_at_the_same_time(self):
        ids = self.reserve(5)
        with self.meeting("grant", 5):
            answers = self.together(*self.attach_calls(ids))
        for attachment_id, answer in zip(ids, answers, strict=True):
            self.assertEqual(attachment_id, answer["connection_info"]["data"]["attachment_id"])
        self.assertEqual(dict.fromkeys(ids, "connected"), self.states())
        self.assertEqual(set(ids), self.driver.granted())
        self.assertEqual("attaching", db_rows.get_volume(self.volume_id)["status"])
        self.assert_lease_free()

    def test_revokes_for_different_hosts_run_at_the_same_time(self):
        ids = self.reserve(4)
        for number, attachment_id in enumerate(ids):
            self.attach(attachment_id, number)
        with self.meeting("revoke", 3):
            answers = self.together(*self.detach_calls(ids[:3]))
        self.assertEqual([ids[3:]] * 3, [[row["id"] for row in rows][-1:] for rows in answers])
        self.assertEqual({ids[3]: "connected"}, self.states())
        self.assertEqual({ids[3]}, self.driver.granted())
        others = [call.others for call in self.driver.driver_calls if call.method == "revoke"]
        self.assertEqual([ids[3:]] * 3, [[item.attachment_id for item in its] for its in others])
        self.assert_lease_free()

    def test_last_revokes_make_volume_available(self):
        ids = self.reserve(3)
        self.together(*self.attach_calls(ids))
        self.together(*self.detach_calls(ids))
        self.assertEqual({}, self.states())
        self.assertEqual("available", db_rows.get_volume(self.volume_id)["status"])
        self.assert_lease_free()

    def test_work_of_group_takes_two_transactions(self):
        ids = self.reserve(6)
        self.enterContext(mock.patch.object(joint_work, "LINGER", TIMEOUT))
        begin = self.enterContext(
            mock.patch.object(
                attachment_store, "begin_together", side_effect=attachment_store.begin_together
            )
        )
        finish = self.enterContext(
            mock.patch.object(
                attachment_store, "finish_together", side_effect=attachment_store.finish_together
            )
        )
        self.together(*self.attach_calls(ids))
        self.assertEqual((1, 1), (begin.call_count, finish.call_count))

    def test_hosts_of_a_group_are_locked_in_the_same_order_as_in_each_other(self):
        conf_fixture.override(self, "max_attachments_per_host", 9, group="manager")
        ids = self.reserve(9)
        lock = self.enterContext(mock.patch.object(session, "lock_row"))
        answers = self.together(*self.attach_calls(ids)[::-1])
        self.assertEqual(
            ids[::-1], [answer["connection_info"]["data"]["attachment_id"] for answer in answers]
        )
        locked = [call.args[2] for call in lock.call_args_list]
        self.assertEqual([f"compute-{number}" for number in range(9)], locked)

    def test_events_have_steps_and_host_of_their_work(self):
        ids = self.reserve(3)
        self.together(*self.attach_calls(ids))
        for number, attachment_id in enumerate(ids):
            (row,) = events.list_of_attachment(attachment_id, None)
            self.assertEqual("connected", row["type"])
            self.assertEqual(["wait", "grant"], [its["name"] for its in row["details"]["steps"]])
            self.assertEqual(f"compute-{number}", row["details"]["host"])

    def test_driver_without_ability_gets_one_call_at_a_time(self):
        ids = self.reserve(4)
        running = []

        def script(call):
            if call.method == "grant":
                running.append(1)
                self.assertEqual(1, len(running))
                running.pop()

        self.enterContext(mock.patch.object(type(self.driver), "PARALLEL_GRANTS", False))
        self.enterContext(mock.patch.object(self.driver, "script", script))
        begin = self.enterContext(mock.patch.object(attachment_store, "begin_together"))
        concurrency.run_at_once(*self.attach_calls(ids))
        begin.assert_not_called()
        self.assertEqual(1, self.backend.calls_per_volume)
        self.assertEqual(dict.fromkeys(ids, "connected"), self.states())

    def test_extend_waits_for_grants_in_progress(self):
        ids = self.reserve(2)
        entered, gate = threading.Semaphore(0), threading.Event()
        self.addCleanup(gate.set)

        def script(call):
            if call.method == "grant":
                entered.release()
                gate.wait(TIMEOUT)

        with mock.patch.object(self.driver, "script", script):
            caller = threading.Thread(target=self.together, args=self.attach_calls(ids))
            caller.start()
            for _ in range(2):
                self.assertTrue(entered.acquire(timeout=TIMEOUT))
            self.assertFalse(self.backend.is_idle(self.volume_id))
            locked = threading.Event()

            def lock():
                with self.backend.lock(self.volume_id):
                    locked.set()

            other = threading.Thread(target=lock)
            other.start()
            self.assertFalse(locked.wait(0.2))  # a slow thread comes later
            gate.set()
            caller.join(TIMEOUT)
        other.join(TIMEOUT)
        self.assertTrue(locked.is_set())


class FailureTest(JointCase):
    def failing(self, failing_id, *, final=False, method="grant"):
        def script(call):
            if call.method == method and call.attachment == failing_id:
                raise exception.BackendError("No.", final=final)

        return mock.patch.object(self.driver, "script", script)

    def test_failed_grant_is_revoked_and_others_stay(self):
        ids = self.reserve(4)
        with self.failing(ids[1]):
            answers = self.together(*self.attach_calls(ids))
        self.assertIsInstance(answers[1], exception.ConnectFailed)
        states = {**dict.fromkeys(ids, "connected"), ids[1]: "connect_failed"}
        self.assertEqual(states, self.states())
        self.assertEqual({*ids} - {ids[1]}, self.driver.granted())
        (revoke,) = [call for call in self.driver.driver_calls if call.method == "revoke"]
        kept = {item.attachment_id for item in revoke.others}
        self.assertEqual({*ids} - {ids[1]}, kept)
        self.assert_lease_free()

    def test_revoke_of_failed_grant_does_not_keep_access_for_other_failed_grants(self):
        ids = self.reserve(3)
        with (
            self.failing(ids[0]),
            mock.patch.object(
                self.driver, "grant", side_effect=exception.BackendError("No.", final=False)
            ),
        ):
            answers = self.together(*self.attach_calls(ids))
        self.assertEqual({exception.ConnectFailed}, {type(answer) for answer in answers})
        revokes = [call for call in self.driver.driver_calls if call.method == "revoke"]
        self.assertEqual([[]] * 3, [list(call.others) for call in revokes])
        self.assert_lease_free()

    def test_surely_failed_grant_is_not_revoked(self):
        ids = self.reserve(2)
        with self.failing(ids[0], final=True):
            self.together(*self.attach_calls(ids))
        self.assertEqual({ids[0]: "connect_failed", ids[1]: "connected"}, self.states())
        self.assertNotIn("revoke", self.driver.methods)
        self.assert_lease_free()

    def test_failed_revoke_is_stored_and_others_are_removed(self):
        ids = self.reserve(3)
        self.together(*self.attach_calls(ids))
        with self.failing(ids[2], method="revoke"):
            answers = self.together(*self.detach_calls(ids))
        self.assertIsInstance(answers[2], exception.DisconnectFailed)
        self.assertEqual({ids[2]: "disconnect_failed"}, self.states())
        self.assert_lease_free()

    def test_refused_connect_does_not_affect_others(self):
        ids = self.reserve(3)
        db_rows.change_attachment(ids[1], state="disconnecting")
        answers = self.together(*self.attach_calls(ids))
        self.assertIsInstance(answers[1], exception.AttachdError)
        self.assertEqual("disconnecting", self.states()[ids[1]])
        self.assertEqual({ids[0], ids[2]}, self.driver.granted())
        self.assert_lease_free()

    def test_database_outage_at_begin_fails_all_and_frees_volume(self):
        ids = self.reserve(3)
        gone = exception.Unavailable(reason="The database does not answer.")
        with mock.patch.object(attachment_store, "begin_together", side_effect=gone):
            answers = self.together(*self.attach_calls(ids))
        self.assertEqual({exception.Unavailable}, {type(answer) for answer in answers})
        self.assertEqual(dict.fromkeys(ids, "reserved"), self.states())
        self.assert_lease_free()
        self.together(*self.attach_calls(ids))
        self.assertEqual(set(ids), self.driver.granted())

    def test_lease_taken_over_during_grants_stores_no_result(self):
        ids = self.reserve(3)

        def script(call):
            if call.method == "grant" and call.attachment == ids[0]:
                generation = db_rows.get_volume(self.volume_id)["lease_generation"]
                db_rows.change_volume(
                    self.volume_id, lease_holder="9" * 32, lease_generation=generation + 1
                )

        self.enterContext(mock.patch.object(joint_work, "LINGER", TIMEOUT))
        with mock.patch.object(self.driver, "script", script):
            answers = self.together(*self.attach_calls(ids))
        self.assertTrue(all(isinstance(answer, exception.AttachdError) for answer in answers))
        self.assertEqual(dict.fromkeys(ids, "connecting"), self.states())
        self.assertEqual(set(ids), self.driver.granted())
        self.assertEqual("9" * 32, db_rows.get_volume(self.volume_id)["lease_holder"])

    def test_attachment_taken_over_during_grants_is_left_and_others_are_stored(self):
        ids = self.reserve(3)

        def script(call):
            if call.method == "grant" and call.attachment == ids[0]:
                db_rows.change_attachment(ids[0], state="disconnecting", generation=9)

        with mock.patch.object(self.driver, "script", script):
            answers = self.together(*self.attach_calls(ids))
        self.assertIsInstance(answers[0], exception.AttachdError)
        self.assertEqual(["disconnecting", "connected", "connected"], list(self.states().values()))
        self.assertEqual(set(ids[1:]), self.driver.granted())
        self.assert_lease_free()

    def test_waiter_times_out_and_later_work_continues(self):
        conf_fixture.override(self, "attach_timeout", 1, group="rpc")
        ids = self.reserve(2)
        with self.backend.lock(self.volume_id):
            answers = concurrency.run_at_once(*self.attach_calls(ids))
        self.assertEqual({exception.Unavailable}, {type(answer) for answer in answers})
        self.assertEqual({}, joint_work._waiting._by_path)
        self.attach(ids[0], 0)
        self.assert_lease_free()


class ExclusionTest(JointCase):
    """What is not done at the same time."""

    def test_attachments_of_one_host_are_connected_one_after_the_other(self):
        ids = self.reserve(3)
        running, most = [], []

        def script(call):
            if call.method == "grant":
                running.append(call.attachment)
                most.append(len(running))
                running.remove(call.attachment)

        with mock.patch.object(self.driver, "script", script):
            answers = self.together(*(functools.partial(self.attach, item, 1) for item in ids))
        self.assertEqual([1, 1, 1], most)
        self.assertEqual(3, len([answer["mode"] for answer in answers]))
        self.assertEqual(set(ids), self.driver.granted())
        self.assert_lease_free()

    def test_connector_without_names_is_connected_alone(self):
        ids = self.reserve(2)
        call = functools.partial(
            attach.attach, self.backend, volume_id=self.volume_id, connector={"ip": "192.0.2.1"}
        )
        self.together(*(functools.partial(call, attachment_id=item) for item in ids))
        self.assertEqual(set(ids), self.driver.granted())
        self.assert_lease_free()

    def test_duplicate_connects_get_the_same_answer(self):
        (attachment_id,) = self.reserve(1)
        calls = [functools.partial(self.attach, attachment_id, 1)] * 4
        answers = self.together(*calls)
        self.assertEqual(3, sum(answer.pop("is_repeated", False) for answer in answers))
        self.assertEqual([answers[0]] * 4, answers)
        self.assertEqual(["grant"], self.driver.methods)

    def test_connects_and_disconnects_are_in_different_groups(self):
        old, new = self.reserve(3), self.reserve(3)
        for number, attachment_id in enumerate(old):
            self.attach(attachment_id, number)
        running, mixed = [], []

        def script(call):
            running.append(call.method)
            mixed.append(len(set(running)) > 1)
            running.remove(call.method)

        attaches = [functools.partial(self.attach, *pair[::-1]) for pair in enumerate(new, 10)]
        with mock.patch.object(self.driver, "script", script):
            self.together(*self.detach_calls(old), *attaches)
        self.assertNotIn(True, mixed)
        self.assertEqual(set(new), self.driver.granted())
        self.assertEqual(dict.fromkeys(new, "connected"), self.states())


class RecoveryTest(JointCase):
    """The process dies during work of a group; another one finishes it."""

    def test_rows_of_dead_group_are_finished_one_by_one(self):
        for method in ("grant", "finish_together"):
            ids = self.reserve(3)
            target = self.driver if method == "grant" else attachment_store
            with mock.patch.object(target, method, side_effect=backends.ProcessKilled):
                threads = [self.killed(call) for call in self.attach_calls(ids)]
                with self.backend.lock(self.volume_id):
                    for thread in threads:
                        thread.start()
                    wait_until(lambda: self.waiting() == 2)
                for thread in threads:
                    thread.join(TIMEOUT)
            states = self.states()
            self.assertEqual(["connecting"] * 3, [states[item] for item in ids])
            self.assertEqual(0, recovery.recover_all(self.backend, Backoff()))
            states = self.states()
            self.assertEqual(["connected"] * 3, [states[item] for item in ids])
            self.assertLessEqual(set(ids), self.driver.granted())
            self.assert_lease_free()

    @staticmethod
    def killed(call):
        def run():
            with contextlib.suppress(backends.ProcessKilled, exception.AttachdError):
                call()

        return threading.Thread(target=run)


class ChanceTest(JointCase):
    """Random calls by many threads."""

    @settings(deadline=None, max_examples=25)
    @given(
        rounds=st.lists(
            st.lists(
                st.tuples(
                    st.integers(0, 5), st.sampled_from(["attach", "detach"]), st.integers(0, 3)
                ),
                min_size=2,
                max_size=8,
            ),
            min_size=1,
            max_size=3,
        ),
        failing=st.sets(st.integers(0, 30), max_size=6),
    )
    def test_rows_and_grants_agree_after_random_calls(self, rounds, failing):
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]
        ids, count = self.reserve(6), iter(range(10_000))

        def script(call):
            if call.method in {"grant", "revoke"} and next(count) in failing:
                raise exception.BackendError("No.")

        with mock.patch.object(self.driver, "script", script):
            for calls in rounds:
                concurrency.run_at_once(*(self.call(ids, *its) for its in calls))
        states = self.states()
        granted = {item for item in ids if item in self.driver.granted()}
        uncertain = {"connect_unknown", "disconnect_failed"}
        surely = {item for item, state in states.items() if state == "connected"}
        perhaps = {item for item, state in states.items() if state in uncertain}
        self.assertLessEqual(surely, granted)
        self.assertLessEqual(granted, surely | perhaps)
        self.assertLessEqual(
            set(states.values()), {"reserved", "connected", "connect_failed", *uncertain}
        )
        self.assert_lease_free()
        self.assertEqual({}, joint_work._waiting._by_path)

    def call(self, ids, number, verb, host):
        if verb == "attach":
            return functools.partial(self.attach, ids[number], host)
        return functools.partial(self.detach, ids[number])
