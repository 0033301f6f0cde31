# SPDX-License-Identifier: Apache-2.0
"""Tests of attachments through the API, with a manager whose backend can fail."""

import datetime
import unittest
from unittest import mock

from attachd import exception
from attachd.tests.fixtures import db_rows
from attachd.tests.functional.api_case import ApiCase

SERVER = "11111111-2222-3333-4444-555555555555"
EXT = "volume 3.71, attachd 1.0"
OTHER_SERVER = "22222222-2222-3333-4444-555555555555"


def host(number, **more):
    return {"host": f"compute-{number}", "initiator": f"iqn.2026-01.org.example:{number}", **more}


class Case(ApiCase):
    def create(self, volume, server=SERVER, status=200, **fields):
        body = {"attachment": {"volume_uuid": volume["id"], "instance_uuid": server, **fields}}
        answer = self.expect(status, "POST", "/attachments", body)
        return answer if status != 200 else answer.body["attachment"]["id"]

    def update(self, identity, connector, status=200):
        body = {"attachment": {"connector": connector}}
        return self.expect(status, "PUT", f"/attachments/{identity}", body)

    def complete(self, identity, status=204):
        self.expect(status, "POST", f"/attachments/{identity}/action", {"os-complete": None})

    def delete(self, identity, status=200):
        return self.expect(status, "DELETE", f"/attachments/{identity}")

    def shown(self, identity):
        return self.api.request("GET", f"/attachments/{identity}").body["attachment"]

    def seen(self, volume):
        now = db_rows.get_volume(volume["id"])
        held = [self.shown(row["id"])["status"] for row in db_rows.list_attachments(volume["id"])]
        return now["status"], now["attach_status"], held


class ConnectorTest(Case):
    def test_connector_with_unknown_keys_is_stored_completely(self):
        connector = host(
            1,
            multipath="False",
            mountpoint="/dev/vdb",
            wwpns=["50014380186b3f65", "50014380186b3f67"],
            system_uuid="A9C60377-F8B4",
            **{"schöner Schlüssel": {"tief": [1, 2.5, None, {"💾": True}]}, "": "\x01\x7f"},
        )
        identity = self.create(db_rows.add_volume())
        self.update(identity, connector)
        kept = db_rows.get_attachment(identity)
        self.assertEqual(connector, kept["connector"])
        self.assertEqual(("compute-1", "/dev/vdb"), (kept["host"], kept["mountpoint"]))
        self.assertEqual(connector, self.driver.driver_calls[-1].export.connector)

    def test_connector_with_keys_of_serialized_objects_returns_400(self):
        identity = self.create(db_rows.add_volume())
        volume = {"attachd_object.name": "Volume", "attachd_object.data": {}}
        for connector in (host(1, **volume), host(1, inner=[{"deep": volume}])):
            answer = self.update(identity, connector, status=400)
            self.assertIn("attachd_object.name", answer.fault)
        self.create(db_rows.add_volume(), connector=host(1, inner=volume), status=400)
        self.assertEqual("reserved", self.shown(identity)["status"])
        self.assertEqual([], self.driver.driver_calls)

    def test_connector_of_documented_size_is_accepted(self):
        identity = self.create(db_rows.add_volume())
        self.update(identity, host(1, filling="x" * 64_000))
        self.update(identity, host(1, filling="x" * 70_000), status=413)

    def test_connector_mode_is_used_for_attachment_without_mode(self):
        identity = self.create(db_rows.add_volume(), connector=host(1, mode="ro"))
        self.assertEqual("ro", self.shown(identity)["attach_mode"])
        self.assertEqual("ro", self.driver.driver_calls[-1].export.mode)

    def test_attachment_mode_overrides_connector_mode(self):
        identity = self.create(db_rows.add_volume(), mode="ro")
        self.update(identity, host(1, mode="rw"))
        self.assertEqual("ro", self.driver.driver_calls[-1].export.mode)


class RepeatedCreateTest(Case):
    def test_repeated_create_after_failed_connect_tries_same_attachment_again(self):
        for fault in ("refused", "lost"):
            for multiattach in (False, True):
                volume = db_rows.add_volume(multiattach=multiattach)
                faults = {"grant": fault, "revoke": "lost"}
                with self.subTest(fault, multiattach=multiattach):
                    with self.driver.faults(**faults):
                        for _ in range(5):
                            self.create(volume, status=500, connector=host(1))
                    (failed,) = db_rows.list_attachments(volume["id"])
                    self.assertEqual(failed["id"], self.create(volume, connector=host(1)))
                    self.assertEqual(("attaching", "attaching", ["attaching"]), self.seen(volume))

    def test_repeated_create_after_failed_connect_shows_it_as_first_one(self):
        volume = db_rows.add_volume()
        with self.driver.faults(grant="refused"):
            self.create(volume, status=500, connector=host(1))
        body = {"attachment": {"volume_uuid": volume["id"], "instance_uuid": SERVER}}
        body["attachment"]["connector"] = host(1)
        answer = self.expect(200, "POST", "/attachments", body).body["attachment"]
        self.assertEqual("reserved", answer["status"])

    def test_repeated_create_after_failed_connect_of_volume_in_use_returns_400(self):
        volume = db_rows.add_volume()
        with self.driver.faults(grant="refused"):
            self.create(volume, status=500, connector=host(1))
        other = self.create(volume, OTHER_SERVER, connector=host(2))
        answer = self.create(volume, status=400, connector=host(1))
        self.assertIn(f"held by attachment {other}", answer.fault)

    def test_repeated_reservation_of_same_request_returns_same_attachment(self):
        for multiattach in (False, True):
            volume = db_rows.add_volume(multiattach=multiattach)
            body = {"attachment": {"volume_uuid": volume["id"], "instance_uuid": SERVER}}

            def reserve(request_id, body=body):
                headers = {"x_openstack_request_id": request_id} if request_id else {}
                answer = self.api.request("POST", "/attachments", body, **headers)
                return answer.body["attachment"]["id"]

            first, second = (f"req-{number * 8}-2222-4333-8444-555555555555" for number in "12")
            made = reserve(first)
            self.assertEqual(made, reserve(first))
            # A live migration is another request, and has a second reservation.
            migration = reserve(second)
            self.assertEqual(migration, reserve(second))
            self.assertEqual(2, len({made, migration}))
            self.assertNotIn(reserve(None), {made, migration})
            self.update(made, host(1))
            self.assertNotIn(reserve(first), {made, migration})


class MultiattachTest(Case):
    def test_multiattach_volume_status_follows_its_attachments(self):
        volume = db_rows.add_volume(multiattach=True)
        steps = [("available", "detached", [])]
        first = self.create(volume)
        steps.append(self.seen(volume))
        self.update(first, host(1))
        steps.append(self.seen(volume))
        self.complete(first)
        steps.append(self.seen(volume))
        second = self.create(volume, OTHER_SERVER)
        steps.append(self.seen(volume))
        self.update(second, host(2))
        self.complete(second)
        steps.append(self.seen(volume))
        self.delete(first)
        third = self.create(volume, OTHER_SERVER)
        steps.append(self.seen(volume))
        self.delete(second)
        steps.append(self.seen(volume))
        self.delete(third)
        steps.append(self.seen(volume))
        self.assertEqual(
            [
                ("available", "detached", []),
                ("reserved", "reserved", ["reserved"]),
                ("attaching", "attaching", ["attaching"]),
                ("in-use", "attached", ["attached"]),
                ("in-use", "attached", ["attached", "reserved"]),
                ("in-use", "attached", ["attached", "attached"]),
                ("in-use", "attached", ["attached", "reserved"]),
                ("reserved", "reserved", ["reserved"]),
                ("available", "detached", []),
            ],
            steps,
        )


class OrdinaryTest(Case):
    def test_ordinary_volume_refuses_second_server(self):
        volume = db_rows.add_volume()
        first = self.create(volume)
        refused = self.create(volume, OTHER_SERVER, status=400)
        self.assertIn(f"held by attachment {first} of server {SERVER}", refused.fault)

    def test_ordinary_volume_is_reserved_twice_by_a_server_and_connected_once(self):
        volume = db_rows.add_volume()
        first, second = self.create(volume), self.create(volume)
        self.update(first, host(1))
        refused = self.update(second, host(2), status=409)
        self.assertIn(first, refused.fault)
        self.assertEqual("reserved", self.shown(second)["status"])

    def test_ordinary_volume_of_a_migrating_server_is_connected_twice(self):
        volume = db_rows.add_volume()
        first = self.create(volume, connector=host(1))
        self.complete(first)
        second = self.create(volume, connector=host(2))
        self.assertEqual({first, second}, self.driver.granted())


class FailureTest(Case):
    def test_create_attachment_with_failed_connect_returns_id_for_retry_by_update(self):
        volume = db_rows.add_volume()
        with self.driver.failing("grant", final=True):
            failed = self.create(volume, status=500, connector=host(1))
        (row,) = db_rows.list_attachments(volume["id"])
        self.assertIn(row["id"], failed.fault)
        self.assertIn("The backend failed.", failed.fault)
        self.assertEqual("error_attaching", self.shown(row["id"])["status"])
        self.assertEqual("available", db_rows.get_volume(volume["id"])["status"])
        self.update(row["id"], host(1))
        self.assertEqual("attaching", self.shown(row["id"])["status"])

    def test_connect_with_unknown_result_blocks_others_until_deleted(self):
        volume = db_rows.add_volume()
        with self.driver.failing("grant", "revoke"):
            self.create(volume, status=500, connector=host(1))
        (row,) = db_rows.list_attachments(volume["id"])
        self.assertEqual("error", db_rows.get_volume(volume["id"])["status"])
        self.create(volume, OTHER_SERVER, status=400)
        self.delete(row["id"])
        self.assertEqual(("available", "detached", []), self.seen(volume))

    def test_delete_attachment_with_backend_error_can_be_retried(self):
        volume = db_rows.add_volume()
        identity = self.create(volume, connector=host(1))
        with self.driver.failing("revoke"):
            self.assertIn(identity, self.delete(identity, status=500).fault)
        self.assertEqual("error_detaching", self.shown(identity)["status"])
        self.assertEqual([], self.delete(identity).body["attachments"])
        self.assertEqual(set(), self.driver.granted())

    def test_connect_without_manager_fails_at_once(self):
        volume = db_rows.add_volume(host="host@absent#pool")
        identity = self.create(volume)
        refused = self.update(identity, host(1), status=503)
        self.assertIn("host@absent", refused.fault)
        self.assertEqual("reserved", self.shown(identity)["status"])
        self.delete(identity)

    def test_connect_with_any_driver_error_can_be_retried(self):
        volume = db_rows.add_volume()
        with self.driver.raising(KeyError("auth_password"), "grant"):
            failed = self.create(volume, status=500, connector=host(1))
        self.assertIn("computeFault", failed.body)
        self.assertEqual(1, len(db_rows.list_attachments(volume["id"])))

    def test_delete_attachment_of_volume_in_error_attaching_makes_it_available(self):
        volume = db_rows.add_volume()
        identity = self.create(volume)
        db_rows.change_volume(volume["id"], state="error", status="error")
        self.create(volume, status=400)
        self.update(identity, host(1), status=409)
        self.complete(identity)
        self.delete(identity)
        self.assertEqual(("available", "detached", []), self.seen(volume))


class DeleteTest(Case):
    def test_delete_reservation_does_not_call_the_backend(self):
        volume = db_rows.add_volume()
        self.delete(self.create(volume))
        self.assertEqual([], self.driver.methods)
        self.assertEqual(("available", "detached", []), self.seen(volume))

    def test_delete_connected_attachment_calls_the_backend(self):
        identity = self.create(db_rows.add_volume(), connector=host(1))
        self.delete(identity)
        self.assertEqual(["grant", "revoke"], self.driver.methods)

    def test_delete_attachment_being_connected_calls_the_backend(self):
        volume = db_rows.add_volume()
        identity = self.create(volume)

        def connect_meanwhile(_attachment):
            db_rows.change_attachment(identity, state="connecting", connector=host(1))
            raise exception.InvalidTransition(
                kind="Attachment", id=identity, source="connecting", event="be cancelled"
            )

        with unittest.mock.patch("attachd.objects.Attachment.cancel", connect_meanwhile):
            self.delete(identity)
        self.assertEqual(["revoke"], self.driver.methods)


class TimesTest(Case):
    def test_attachment_shows_attach_time(self):
        identity = self.create(db_rows.add_volume(), connector=host(1))
        shown = datetime.datetime.fromisoformat(self.shown(identity)["attached_at"])
        kept = db_rows.get_attachment(identity)["attached_at"]
        self.assertEqual(kept, shown)


class BackendPathsTest(Case):
    """Errors of a backend that name files of its machine."""

    ERROR = "'tgtadm --control /run/x' failed: no socket /run/attachd-tgtd/socket."

    def test_errors_of_connect_and_disconnect_have_no_path_and_log_has_it(self):
        identity = self.create(db_rows.add_volume())
        self.update(identity, host(1))
        other = self.create(db_rows.add_volume())
        for step, ask in (
            ("revoke", lambda: self.delete(identity, status=500)),
            ("grant", lambda: self.update(other, host(1), status=500)),
        ):
            failure = mock.Mock(side_effect=exception.BackendError(self.ERROR))
            with (
                self.subTest(step),
                mock.patch.object(self.driver, step, failure),
                self.assertLogs("attachd.manager", "WARNING") as logged,
            ):
                answer = ask()
                self.assertIn("A command failed: no socket (path).", answer.fault)
                self.assertNotIn("/run", answer.fault)
                self.assertIn(self.ERROR, "".join(logged.output))
        for row in (identity, other):
            answer = self.api.request("GET", f"/attachments/{row}", version=EXT)
            self.assertIn("no socket (path).", answer.body["attachment"]["error"])
            self.assertNotIn("/run", answer.body["attachment"]["error"])

    def test_error_of_backend_that_is_down_has_no_path(self):
        self.api.backend.take_down(exception.BackendError(self.ERROR))
        volume = db_rows.add_volume()
        body = {"attachment": {"volume_uuid": volume["id"], "connector": host(1)}}
        answer = self.expect(503, "POST", "/attachments", body)
        self.assertIn("no socket (path).", answer.fault)
        self.assertNotIn("/run", answer.fault)
