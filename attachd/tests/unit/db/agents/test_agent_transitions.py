# SPDX-License-Identifier: Apache-2.0
"""Reports of an agent about its attachments, and reports that are refused."""

from attachd import exception
from attachd.db.agents import agent_transitions
from attachd.db.attachments import async_requests
from attachd.states import AttachmentState
from attachd.tests.fixtures import databases, db_rows

HOST = "compute-1"
MOVES = {
    "complete": (("connected", "attached"), "/dev/sdb"),
    "record_failure": (("connected", "attached", "withdrawing"), "no session"),
    "release": (("withdrawing",),),
    "refuse_detach": (("withdrawing",), "mounted"),
}
"""What each function takes besides host and generation, after the states that it is said in."""


class AgentTransitionsTest(databases.DatabaseCase):
    def attachment(self, state, **values):
        volume = db_rows.add_volume()["id"]
        values = {"agent": HOST, "generation": 3, **values}
        return db_rows.add_attachment(volume, state, **values)["id"]

    def seen(self, attachment_id, *names):
        row = db_rows.get_attachment(attachment_id)
        volume = db_rows.get_volume(row["volume_id"])["status"]
        return (row["state"], volume, *(row[name] for name in names))

    def test_complete_stores_device_and_attaches(self):
        for state in ("connected", "attached"):
            attachment_id = self.attachment(state, error="it failed before")
            row = agent_transitions.complete(attachment_id, HOST, 3, "/dev/sdb")
            self.assertEqual(("attached", "here@fake#pool"), (row["state"], row["volume_host"]))
            expected = ("attached", "in-use", "/dev/sdb", None, 3)
            self.assertEqual(expected, self.seen(attachment_id, "device", "error", "generation"))

    def test_record_failure_stores_error_only(self):
        attachment_id = self.attachment("connected")
        row = agent_transitions.record_failure(attachment_id, HOST, 3, "no session " * 200)
        self.assertTrue(row["error"].startswith("no session"))
        self.assertEqual(("connected", "attaching", None), self.seen(attachment_id, "device"))
        agent_transitions.record_failure(attachment_id, HOST, 3, "no session " * 200)

    def test_record_secret_stores_generation_only(self):
        attachment_id = self.attachment(
            "connected", agent=None, secret_agent=HOST, error="no libvirt"
        )
        agent_transitions.record_secret(attachment_id, HOST, 3)
        expected = ("connected", "attaching", 3, None)
        self.assertEqual(expected, self.seen(attachment_id, "secret_generation", "error"))
        agent_transitions.record_failure(attachment_id, HOST, 3, "no libvirt")
        self.assertEqual("no libvirt", db_rows.get_attachment(attachment_id)["error"])

    def test_record_secret_of_other_host_generation_or_state_is_refused(self):
        for state, values in (
            ("connected", {"secret_agent": "other"}),
            ("connected", {"generation": 4}),
            ("disconnecting", {}),
        ):
            known = {"agent": None, "secret_agent": HOST, **values}
            attachment_id = self.attachment(state, **known)
            with self.assertRaises(exception.InvalidTransition):
                agent_transitions.record_secret(attachment_id, HOST, 3)
            self.assertIsNone(db_rows.get_attachment(attachment_id)["secret_generation"])

    def test_release_moves_to_disconnecting(self):
        attachment_id = self.attachment("withdrawing", device="/dev/sdb")
        row = agent_transitions.release(attachment_id, HOST, 3)
        self.assertEqual(("disconnecting", "detaching"), (row["state"], row["volume_status"]))
        self.assertEqual(("disconnecting", "detaching", None), self.seen(attachment_id, "device"))

    def test_refuse_detach_returns_to_attached_with_error(self):
        attachment_id = self.attachment("withdrawing", device="/dev/sdb")
        agent_transitions.refuse_detach(attachment_id, HOST, 3, "/mnt is mounted")
        expected = ("attached", "in-use", "/dev/sdb", "/mnt is mounted")
        self.assertEqual(expected, self.seen(attachment_id, "device", "error"))

    def test_repeated_report_is_stored_once(self):
        for name, (states, *rest) in MOVES.items():
            attachment_id = self.attachment(states[0])
            first = getattr(agent_transitions, name)(attachment_id, HOST, 3, *rest)
            again = getattr(agent_transitions, name)(attachment_id, HOST, 3, *rest)
            with self.subTest(name):
                self.assertEqual(first["state"], again["state"])
                self.assertEqual(first.keys(), again.keys())

    def test_report_of_other_host_or_generation_is_refused(self):
        for name, (states, *rest) in MOVES.items():
            for host, generation in (("compute-2", 3), (HOST, 2), (HOST, 4)):
                attachment_id = self.attachment(states[0], error="as before")
                before = db_rows.get_attachment(attachment_id)
                with (
                    self.subTest(name, host=host, generation=generation),
                    self.assertRaises(exception.InvalidTransition),
                ):
                    getattr(agent_transitions, name)(attachment_id, host, generation, *rest)
                self.assertEqual(before, db_rows.get_attachment(attachment_id))

    def test_report_on_attachment_without_agent_is_refused(self):
        for name, (states, *rest) in MOVES.items():
            attachment_id = self.attachment(states[0], agent=None)
            with self.subTest(name), self.assertRaises(exception.InvalidTransition):
                getattr(agent_transitions, name)(attachment_id, HOST, 3, *rest)

    def test_report_in_other_state_is_refused(self):
        again = {"release": "disconnecting", "refuse_detach": "attached"}
        for name, (states, *rest) in MOVES.items():
            for state in set(AttachmentState) - {*states, again.get(name)}:
                attachment_id = self.attachment(state.value)
                with self.subTest(name, state=state), self.assertRaises(exception.Conflict):
                    getattr(agent_transitions, name)(attachment_id, HOST, 3, *rest)
                self.assertEqual(state, db_rows.get_attachment(attachment_id)["state"])

    def test_complete_after_withdraw_is_refused(self):
        attachment_id = self.attachment("connected")
        async_requests.withdraw(attachment_id, db_rows.get_attachment(attachment_id)["volume_id"])
        with self.assertRaisesRegex(exception.InvalidTransition, "Fetch the desired state again"):
            agent_transitions.complete(attachment_id, HOST, 3, "/dev/sdb")
        self.assertEqual(
            "disconnecting", agent_transitions.release(attachment_id, HOST, 4)["state"]
        )

    def test_report_on_deleted_attachment_raises_not_found(self):
        attachment_id = self.attachment("withdrawing")
        db_rows.remove_attachment(attachment_id)
        for name, (_states, *rest) in MOVES.items():
            with self.subTest(name), self.assertRaises(exception.AttachmentNotFound):
                getattr(agent_transitions, name)(attachment_id, HOST, 3, *rest)
