# SPDX-License-Identifier: Apache-2.0
"""Connects: the row before, the driver, the row after; see also test_attach_*.py."""

import functools
from unittest import mock

from attachd import exception
from attachd.db import audit
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.attachments.connect_rules import Action, Request
from attachd.db.types import type_store
from attachd.manager import attach, detach
from attachd.tests.fixtures import backends, db_rows, fake_agent
from attachd.tests.fixtures.db_rows import CONNECTOR, OTHER_CONNECTOR


class AttachTest(backends.BackendCase):
    """One volume, one attachment."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume(provider={"lun": 7})["id"]
        self.attachment_id = db_rows.add_attachment(self.volume_id)["id"]

    def _attach(self, connector=CONNECTOR):
        return attach.attach(self.backend, self.attachment_id, self.volume_id, connector)

    def test_attach_grants_access_and_returns_connection(self):
        answer = self._attach()
        self.assertEqual({self.attachment_id}, self.driver.granted())
        self.assertEqual("rw", answer["mode"])
        self.assertEqual("fake", answer["connection_info"]["driver_volume_type"])
        self.assertEqual(self.attachment_id, answer["connection_info"]["data"]["attachment_id"])
        self.assertEqual("rw", answer["connection_info"]["data"]["access_mode"])

    def test_attach_with_incomplete_connector_is_refused_before_row_changes(self):
        lacking = exception.InvalidInput(
            field="connector.wwpn", value=None, reason="It needs one."
        )
        connect = (attach.attach, attach.attach_exclusive)
        with mock.patch.object(self.driver, "check_connector", side_effect=lacking):
            for item in connect:
                with self.assertRaisesRegex(exception.InvalidInput, "wwpn"):
                    item(self.backend, self.attachment_id, self.volume_id, {"host": "h"})
        self.assertEqual("reserved", db_rows.get_attachment(self.attachment_id)["state"])
        self.assertEqual([], self.driver.driver_calls)

    def test_check_refuses_mode_that_driver_refuses(self):
        volume_id = db_rows.add_volume()["id"]
        values = {"project_id": db_rows.PROJECT, "asked_mode": "ro"}
        self.assertEqual("ro", attach.check(self.backend, volume_id, CONNECTOR, values))

        def refuse_ro(mode):
            if mode == "ro":
                raise exception.InvalidInput(field="mode", value=mode, reason="It is writable.")

        with mock.patch.object(self.driver, "check_access_mode", refuse_ro):
            with self.assertRaisesRegex(exception.InvalidInput, "writable"):
                attach.check(self.backend, volume_id, CONNECTOR, values)
            values["asked_mode"] = "rw"
            self.assertEqual("rw", attach.check(self.backend, volume_id, CONNECTOR, values))

    def test_attach_stores_connection_and_connector_in_row(self):
        answer = self._attach({**CONNECTOR, "mountpoint": "/dev/vdb", "x-rack": [1, None]})
        row = db_rows.get_attachment(self.attachment_id)
        self.assertEqual("connected", row["state"])
        self.assertEqual(answer["connection_info"], row["connection_info"])
        self.assertEqual(("compute-1", "/dev/vdb", "rw"), (row["host"], row["mountpoint"], "rw"))
        self.assertEqual([1, None], row["connector"]["x-rack"])
        self.assertIsNotNone(row["attached_at"])
        self.assertIsNone(row["error"])
        self.assertIsNone(db_rows.get_volume(self.volume_id)["lease_holder"])
        self.assertEqual("attaching", db_rows.get_volume(self.volume_id)["status"])

    def test_attach_stores_what_recovery_needs_before_driver_call(self):
        seen = []
        self.driver.script = lambda *_: seen.append(
            (db_rows.get_attachment(self.attachment_id), db_rows.get_volume(self.volume_id))
        )
        self._attach()
        row, volume = seen[0]
        self.assertEqual("connecting", row["state"])
        self.assertEqual(CONNECTOR, row["connector"])
        self.assertEqual((1, 32), (row["generation"], len(row["secret"])))
        self.assertIsNotNone(volume["lease_holder"])
        self.assertEqual(("attaching", "attaching"), (volume["status"], volume["attach_status"]))

    def test_attach_passes_provider_connector_mode_and_secret_to_driver(self):
        self._attach()
        (handed,) = self.driver.driver_calls
        self.assertEqual(
            (self.volume_id, 1, {"lun": 7}),
            (handed.volume.id, handed.volume.size_gib, handed.volume.provider),
        )
        row = db_rows.get_attachment(self.attachment_id)
        expected = {"attachment_id": self.attachment_id, "connector": CONNECTOR, "mode": "rw"}
        expected |= {"secret": row["secret"], "provider_secrets": {}}
        expected |= {"own_connection": False, "key_holder": "caller"}
        self.assertEqual(expected, vars(handed.export))

    def attach_for_compute(self, **values):
        """Connect an attachment of Compute by a driver whose keys libvirt needs."""
        server = "11111111-2222-3333-4444-555555555555"
        db_rows.change_attachment(
            self.attachment_id, by_service=True, instance_uuid=server, **values
        )
        with mock.patch.object(self.driver, "LIBVIRT_SECRETS", True):
            return self._attach()

    def test_attach_for_compute_gives_key_to_agent_that_defines_secrets(self):
        fake_agent.report_agent(CONNECTOR["host"], libvirt_secrets=True)
        self.attach_for_compute()
        row = db_rows.get_attachment(self.attachment_id)
        self.assertEqual(CONNECTOR["host"], row["secret_agent"])
        self.assertEqual("agent", self.driver.driver_calls[0].export.key_holder)

    def test_attach_for_compute_without_such_agent_is_refused_before_row_changes(self):
        with self.assertRaisesRegex(exception.Conflict, "libvirt_uri"):
            self.attach_for_compute()
        fake_agent.report_agent(CONNECTOR["host"], libvirt_secrets=False)
        with self.assertRaisesRegex(exception.Conflict, "libvirt_uri"):
            self.attach_for_compute()
        self.assertEqual("reserved", db_rows.get_attachment(self.attachment_id)["state"])
        self.assertEqual([], self.driver.driver_calls)

    def test_attach_for_compute_without_agent_uses_key_of_hosts_to_write(self):
        self.enterContext(mock.patch.object(self.driver, "has_host_key", True))
        with self.assertRaisesRegex(exception.Conflict, "to read and write with one key"):
            self.attach_for_compute(asked_mode="ro")
        self.attach_for_compute(asked_mode=None)
        self.assertEqual("host", self.driver.driver_calls[0].export.key_holder)
        self.assertIsNone(db_rows.get_attachment(self.attachment_id)["secret_agent"])

    def test_attach_by_agent_needs_no_secret(self):
        self.attach_for_compute(agent=CONNECTOR["host"])
        self.assertIsNone(db_rows.get_attachment(self.attachment_id)["secret_agent"])

    def test_attach_readonly_volume_grants_ro(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "True"})
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, "it is read-only.*mode 'ro'"
        ):
            self._attach({**CONNECTOR, "mode": "rw"})
        self.assertEqual("reserved", db_rows.get_attachment(self.attachment_id)["state"])
        answer = self._attach()
        self.assertEqual("ro", answer["mode"])
        self.assertEqual("ro", self.driver.driver_calls[0].export.mode)
        self.assertEqual("ro", db_rows.get_attachment(self.attachment_id)["mode"])

    def test_attach_volume_no_longer_readonly_grants_rw(self):
        db_rows.change_volume(self.volume_id, admin_metadata={"readonly": "False"})
        self.assertEqual("rw", self._attach()["mode"])

    def test_attach_draws_secret_per_attachment(self):
        self._attach()
        other_volume = db_rows.add_volume()["id"]
        other = db_rows.add_attachment(other_volume)["id"]
        attach.attach(self.backend, other, other_volume, CONNECTOR)
        self.assertNotEqual(
            db_rows.get_attachment(self.attachment_id)["secret"],
            db_rows.get_attachment(other)["secret"],
        )

    def test_attach_draws_secret_of_the_length_of_the_backend(self):
        self.backend.secret_length = 12
        self._attach()
        (call,) = self.driver.driver_calls
        self.assertRegex(call.export.secret, "^[0-9A-Za-z]{12}$")

    def test_attach_unknown_attachment_raises_not_found(self):
        with self.assertRaises(exception.AttachmentNotFound):
            attach.attach(self.backend, "nothing", self.volume_id, CONNECTOR)
        with self.assertRaises(exception.VolumeNotFound):
            attach.attach(self.backend, self.attachment_id, "nothing", CONNECTOR)
        self.assertEqual([], self.driver.driver_calls)

    def test_attach_with_backend_down_leaves_row(self):
        self.backend.error = "the cable is out"
        with self.assertRaisesRegex(exception.Unavailable, "cable") as refused:
            self._attach()
        self.assertEqual(503, refused.exception.code)
        self.assertEqual("reserved", db_rows.get_attachment(self.attachment_id)["state"])

    def test_attach_volume_in_error_is_refused(self):
        db_rows.change_volume(self.volume_id, state="error", status="error")
        with self.assertRaisesRegex(exception.Conflict, "error"):
            self._attach()
        self.assertEqual([], self.driver.driver_calls)

    def test_attach_completed_reservation_connects_it(self):
        db_rows.change_attachment(self.attachment_id, state="attached")
        self._attach()
        self.assertEqual("connected", db_rows.get_attachment(self.attachment_id)["state"])

    def test_attach_row_of_os_attach_is_refused(self):
        db_rows.change_attachment(self.attachment_id, state="attached", kind="legacy")
        with self.assertRaises(exception.InvalidTransition):
            self._attach()
        self.assertEqual([], self.driver.driver_calls)


class DuplicateRequestTest(backends.BackendCase):
    """The same call a second time."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]

    def _attach(self, attachment_id, connector=CONNECTOR):
        return attach.attach_exclusive(self.backend, attachment_id, self.volume_id, connector)

    def test_duplicate_attach_same_connector_returns_same_answer(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        first = self._attach(attachment_id)
        before = db_rows.get_attachment(attachment_id)
        self.assertEqual({**first, "is_repeated": True}, self._attach(attachment_id))
        self.assertEqual(before, db_rows.get_attachment(attachment_id))
        self.assertEqual(["grant"], self.driver.methods)

    def test_duplicate_attach_of_attached_row_returns_same_answer(self):
        info = {"driver_volume_type": "fake", "data": {"access_mode": "ro"}}
        attachment = db_rows.add_attachment(
            self.volume_id, "attached", connection_info=info, mode="ro"
        )
        answer = {"id": attachment["id"], "connection_info": info, "mode": "ro"}
        self.assertEqual({**answer, "is_repeated": True}, self._attach(attachment["id"]))

    def test_duplicate_attach_with_other_mountpoint_returns_same_answer(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        first = self._attach(attachment_id, {**CONNECTOR, "mountpoint": "/dev/vdb"})
        again = self._attach(attachment_id, {**CONNECTOR, "mountpoint": "/dev/vdc"})
        self.assertEqual({**first, "is_repeated": True}, again)

    def test_attach_other_connector_is_refused_in_states_with_access(self):
        bound = ["connecting", "connected", "attached", "connect_unknown"]
        for state in [*bound, "disconnecting", "disconnect_failed"]:
            with self.subTest(state=state):
                self.volume_id = db_rows.add_volume()["id"]
                attachment_id = db_rows.add_attachment(self.volume_id, state)["id"]
                with self.assertRaisesRegex(exception.ConnectorConflict, "compute-1"):
                    self._attach(attachment_id, db_rows.OTHER_CONNECTOR)
                self.assertEqual(state, db_rows.get_attachment(attachment_id)["state"])
                self.assertEqual([], self.driver.driver_calls)

    def test_attach_other_host_after_clean_failure_succeeds(self):
        attachment_id = db_rows.add_attachment(self.volume_id, "connect_failed", secret="7" * 32)[
            "id"
        ]
        self._attach(attachment_id, db_rows.OTHER_CONNECTOR)
        row = db_rows.get_attachment(attachment_id)
        self.assertEqual(("connected", "compute-2"), (row["state"], row["host"]))

    def test_attach_retry_uses_same_secret_only_in_doubt(self):
        for state in ("connecting", "connect_failed", "connect_unknown"):
            self.volume_id = db_rows.add_volume()["id"]
            attachment = db_rows.add_attachment(
                self.volume_id, state, secret="7" * 32, generation=3
            )
            self._attach(attachment["id"])
            secret = self.driver.driver_calls[-1].export.secret
            self.assertEqual(state != "connect_failed", secret == "7" * 32, state)
            row = db_rows.get_attachment(attachment["id"])
            self.assertEqual(("connected", 4), (row["state"], row["generation"]), state)

    def test_attach_disconnecting_attachment_is_refused(self):
        for state in ("disconnecting", "disconnect_failed"):
            self.volume_id = db_rows.add_volume()["id"]
            attachment_id = db_rows.add_attachment(self.volume_id, state)["id"]
            with self.assertRaises(exception.InvalidTransition):
                self._attach(attachment_id)
        self.assertEqual([], self.driver.driver_calls)


SERVER = "11111111-1111-1111-1111-111111111111"
OTHER_SERVER = "22222222-2222-2222-2222-222222222222"
BOUND = (
    "connecting",
    "connected",
    "attached",
    "connect_unknown",
    "disconnecting",
    "disconnect_failed",
)


class OtherAttachmentsTest(backends.BackendCase):
    """Two attachments of one volume."""

    def _volume(self, state, server=SERVER, **volume):
        """Return ids of a volume, of an attachment in ``state``, and of a reserved one."""
        volume_id = db_rows.add_volume(**volume)["id"]
        other = db_rows.add_attachment(volume_id, state, instance_uuid=server)["id"]
        attachment_id = db_rows.add_attachment(volume_id, instance_uuid=SERVER)["id"]
        return volume_id, other, attachment_id

    def test_attach_exclusive_beside_connection_of_ordinary_volume_is_refused(self):
        for state in BOUND:
            volume_id, other, attachment_id = self._volume(state)
            with self.subTest(state=state), self.assertRaises(exception.Conflict) as refused:
                attach.attach_exclusive(self.backend, attachment_id, volume_id, OTHER_CONNECTOR)
            if state not in {"connect_unknown", "disconnect_failed"}:
                self.assertIsInstance(refused.exception, exception.NotMultiattach)
                self.assertIn(other, str(refused.exception))
            self.assertEqual("reserved", db_rows.get_attachment(attachment_id)["state"])
        self.assertEqual([], self.driver.driver_calls)

    def test_attach_exclusive_beside_rows_without_access_succeeds(self):
        for state in ("reserved", "connect_failed"):
            volume_id, _other, attachment_id = self._volume(state)
            attach.attach_exclusive(self.backend, attachment_id, volume_id, CONNECTOR)
            self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_attach_same_server_from_second_host_succeeds(self):
        for state in ("connecting", "connected", "attached", "disconnecting"):
            volume_id, _other, attachment_id = self._volume(state)
            attach.attach(self.backend, attachment_id, volume_id, OTHER_CONNECTOR)
            self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_attach_other_server_of_ordinary_volume_is_refused(self):
        # Such a pair results from a connect that failed cleanly and is retried too late.
        for state in ("reserved", *BOUND):
            for connect in (attach.attach, attach.attach_exclusive):
                volume_id, _other, attachment_id = self._volume(state, OTHER_SERVER)
                with self.subTest(state=state), self.assertRaises(exception.Conflict):
                    connect(self.backend, attachment_id, volume_id, OTHER_CONNECTOR)
        self.assertEqual([], self.driver.driver_calls)

    def test_attach_two_rows_without_server_of_ordinary_volume_is_refused(self):
        volume_id = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume_id, "connected")
        attachment_id = db_rows.add_attachment(volume_id)["id"]
        with self.assertRaises(exception.NotMultiattach):
            attach.attach(self.backend, attachment_id, volume_id, OTHER_CONNECTOR)

    def test_attach_multiattach_volume_beside_other_server_succeeds(self):
        for state in ("reserved", "connecting", "connected", "attached", "disconnecting"):
            for connect in (attach.attach, attach.attach_exclusive):
                volume_id, _other, attachment_id = self._volume(
                    state, OTHER_SERVER, multiattach=True
                )
                connect(self.backend, attachment_id, volume_id, OTHER_CONNECTOR)
                self.assertEqual("connected", db_rows.get_attachment(attachment_id)["state"])

    def test_attach_second_host_keeps_multiattach_volume_in_use(self):
        volume_id, _other, attachment_id = self._volume("attached", OTHER_SERVER, multiattach=True)
        attach.attach_exclusive(self.backend, attachment_id, volume_id, OTHER_CONNECTOR)
        volume = db_rows.get_volume(volume_id)
        self.assertEqual(("in-use", "attached"), (volume["status"], volume["attach_status"]))

    def test_attach_multiattach_volume_beside_doubtful_attachment_is_refused(self):
        for state in ("connect_unknown", "disconnect_failed"):
            volume_id, _other, attachment_id = self._volume(state, OTHER_SERVER, multiattach=True)
            with self.assertRaisesRegex(exception.Conflict, "error"):
                attach.attach(self.backend, attachment_id, volume_id, CONNECTOR)

    def test_attach_retry_beside_own_doubtful_state_succeeds(self):
        volume_id = db_rows.add_volume()["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connect_unknown")["id"]
        self.assertEqual("error", db_rows.get_volume(volume_id)["status"])
        attach.attach_exclusive(self.backend, attachment_id, volume_id, CONNECTOR)
        self.assertEqual("attaching", db_rows.get_volume(volume_id)["status"])


class ModeCase(backends.BackendCase):
    def attach(self, attachment_id, connector=CONNECTOR):
        row = db_rows.get_attachment(attachment_id)
        return attach.attach(self.backend, attachment_id, row["volume_id"], connector)

    def make_fail(self, attachment_id, connector=CONNECTOR):
        with self.assertRaises(exception.ConnectFailed):
            self.attach(attachment_id, connector)

    def modes(self, attachment_id):
        """Return the mode of the last driver call, and that of the row."""
        return self.driver.driver_calls[-1].export.mode, db_rows.get_attachment(attachment_id)[
            "mode"
        ]


class ModeTest(ModeCase):
    """Access modes."""

    def setUp(self):
        super().setUp()
        self.volume_id = db_rows.add_volume()["id"]

    def mode(self, reserved, connector):
        attachment_id = db_rows.add_attachment(self.volume_id, mode=reserved)["id"]
        answer = self.attach(attachment_id, connector)
        result = answer["connection_info"]["data"]["access_mode"]
        self.assertEqual({answer["mode"]}, {result, *self.modes(attachment_id)})
        detach.detach(self.backend, attachment_id, self.volume_id)
        return answer["mode"]

    def test_mode_default_is_rw(self):
        self.assertEqual("rw", self.mode(None, CONNECTOR))

    def test_mode_of_connector_limits_access(self):
        self.assertEqual("ro", self.mode(None, {**CONNECTOR, "mode": "ro"}))

    def test_mode_of_reservation_wins_over_connector(self):
        self.assertEqual("ro", self.mode("ro", {**CONNECTOR, "mode": "rw"}))
        self.assertEqual("rw", self.mode("rw", {**CONNECTOR, "mode": "ro"}))

    def test_mode_unknown_in_connector_is_rw(self):
        self.assertEqual("rw", self.mode(None, {**CONNECTOR, "mode": "shared"}))


class OneWriterTest(ModeCase):
    """A multiattach volume with one writer, and a connect that is repeated."""

    def setUp(self):
        super().setUp()
        specs = {"multiattach": "<is> True", "mode": "RO"}
        kind = type_store.create({"name": "one-writer", "extra_specs": specs})
        self.volume_id = db_rows.add_volume(volume_type_id=kind["id"], multiattach=True)["id"]
        self.first = db_rows.add_attachment(self.volume_id)["id"]
        self.second = db_rows.add_attachment(self.volume_id)["id"]

    def test_mode_one_writer_grants_first_rw_and_second_ro(self):
        self.assertEqual("rw", self.attach(self.first)["mode"])
        self.assertEqual("ro", self.attach(self.second, OTHER_CONNECTOR)["mode"])
        self.assertEqual(("ro", "ro"), self.modes(self.second))
        detach.detach(self.backend, self.first, self.volume_id)
        self.assertEqual("ro", db_rows.get_attachment(self.second)["mode"])

    def test_mode_one_writer_after_clean_failure_is_free(self):
        with self.driver.failing("grant", final=True):
            self.make_fail(self.first)
        self.assertIsNone(db_rows.get_attachment(self.first)["mode"])
        self.assertEqual("rw", self.attach(self.second, OTHER_CONNECTOR)["mode"])
        self.assertEqual("ro", self.attach(self.first)["mode"])

    def test_mode_one_writer_requested_rw_is_kept_after_refusal(self):
        db_rows.change_attachment(self.first, mode="rw", asked_mode="rw")
        with self.driver.failing("grant", final=True):
            self.make_fail(self.first)
        self.attach(self.second, OTHER_CONNECTOR)
        with self.assertRaisesRegex(
            exception.InvalidVolumeAttachMode, f"attachment {self.second}"
        ):
            self.attach(self.first)
        self.assertEqual("connect_failed", db_rows.get_attachment(self.first)["state"])

    def test_mode_one_writer_retry_in_doubt_keeps_rw(self):
        with self.driver.failing("grant", "revoke"):
            self.make_fail(self.first)
        self.assertEqual("connect_unknown", db_rows.get_attachment(self.first)["state"])
        db_rows.change_attachment(self.second, mode="rw", state="attached")  # as nothing may do
        self.assertEqual("rw", self.attach(self.first)["mode"])


class SecretTest(ModeCase):
    """Secrets of connections."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(self.driver, "connection_key", self.key))
        self.volume_id = db_rows.add_volume(multiattach=True)["id"]

    @staticmethod
    def key(volume, export):
        return f"{volume.id} {export.connector['host']} {export.mode}"

    def secret(self, connector=CONNECTOR, **values):
        attachment_id = db_rows.add_attachment(self.volume_id, **values)["id"]
        self.attach(attachment_id, connector)
        row = db_rows.get_attachment(attachment_id)
        self.assertEqual(row["secret"], self.driver.driver_calls[-1].export.secret)
        return attachment_id, row["secret"]

    def test_secret_of_shared_connection_is_equal(self):
        (first, known), (_second, same) = self.secret(), self.secret()
        self.assertEqual(known, same)
        detach.detach(self.backend, first, self.volume_id)
        self.assertEqual(known, self.secret()[1])

    def test_secret_of_other_connection_differs(self):
        secrets = {self.secret()[1], self.secret(OTHER_CONNECTOR)[1], self.secret(mode="ro")[1]}
        self.assertEqual(3, len(secrets))

    def test_secret_of_doubtful_connection_is_shared(self):
        for state in ("connect_unknown", "disconnect_failed", "disconnecting", "connecting"):
            with self.subTest(state):
                attachment_id, known = self.secret()
                db_rows.change_attachment(attachment_id, state=state)
                other = db_rows.add_attachment(self.volume_id)["id"]
                request = Request(Action.RESUME, CONNECTOR)
                guard = attach.attach_guard(self.backend, request)
                volume = {**audit.find_volume(self.volume_id), "any_host_closed": False}
                row, beside = map(db_rows.get_attachment, (other, attachment_id))
                values = guard(LockedVolume(None, volume, row, [beside]))
                self.assertEqual(known, values["secret"])
                db_rows.remove_attachment(other)
                db_rows.remove_attachment(attachment_id)

    def test_secret_of_failed_connection_is_not_shared(self):
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        with self.driver.failing("grant", final=True):
            self.make_fail(attachment_id)
        known = db_rows.get_attachment(attachment_id)["secret"]
        _other, secret = self.secret()
        self.assertNotEqual(known, secret)
        self.attach(attachment_id)
        self.assertEqual(secret, db_rows.get_attachment(attachment_id)["secret"])

    def test_secret_changes_for_other_host(self):
        _first, known = self.secret()
        attachment_id = db_rows.add_attachment(self.volume_id)["id"]
        with self.driver.failing("grant", final=True):
            self.make_fail(attachment_id)
        self.assertEqual(known, db_rows.get_attachment(attachment_id)["secret"])
        self.attach(attachment_id, OTHER_CONNECTOR)
        self.assertNotEqual(known, db_rows.get_attachment(attachment_id)["secret"])


class DeniedSharingTest(ModeCase):
    """A failed connect is repeated beside another attachment, which a policy rule denies."""

    def test_attach_retry_with_denied_sharing_is_forbidden(self):
        volume_id = db_rows.add_volume(multiattach=True)["id"]
        attachment_id = db_rows.add_attachment(volume_id, "connect_failed")["id"]
        other = db_rows.add_attachment(volume_id, "attached")["id"]
        repeat = functools.partial(
            attach.attach_exclusive, self.backend, attachment_id, volume_id, OTHER_CONNECTOR
        )
        with self.assertRaisesRegex(exception.Forbidden, "a:rule"):
            repeat("a:rule")
        db_rows.remove_attachment(other)
        self.assertIn("connection_info", repeat("a:rule"))
