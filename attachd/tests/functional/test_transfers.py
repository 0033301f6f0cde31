# SPDX-License-Identifier: Apache-2.0
"""Tests of transfers of volumes: what is refused, what moves, and calls at the same moment."""

import functools

from attachd import exception
from attachd.db import messages, quotas
from attachd.db.attachments import attachment_store, legacy
from attachd.db.types import type_store
from attachd.db.volumes import snapshot_store, transfer_store, volume_store
from attachd.states import Event
from attachd.tests.fixtures import captured_notifications, db_rows, wsgi_api
from attachd.tests.functional import race_case
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.functional.race_case import DatabaseRaceCase

OTHERS = "b" * 32
OTHER = wsgi_api.OTHER_PROJECT_MEMBER
PLAIN = {"name": None, "no_snapshots": False}


class TransferCase(ApiCase):
    """A volume of one project."""

    def setUp(self):
        super().setUp()
        self.volume = self.add_volume()

    def add_volume(self, **values):
        return db_rows.add_volume(project_id=wsgi_api.PROJECT, **values)["id"]

    def add_snapshot(self, state="available", volume=None, **values):
        volume = volume or self.volume
        values = {"project_id": wsgi_api.PROJECT, **values}
        return db_rows.add_snapshot(volume, state, **values)["id"]

    def offer(self, status=202, volume=None, **values):
        body = {"transfer": {"volume_id": volume or self.volume, **values}}
        answer = self.expect(status, "POST", "/volume-transfers", body)
        return answer.body["transfer"] if status == 202 else answer.fault

    def accept(self, transfer, status=202, token=OTHER, **values):
        path = f"/volume-transfers/{transfer['id']}/accept"
        body = {"accept": {"auth_key": transfer["auth_key"], **values}}
        return self.expect(status, "POST", path, body, token=token)

    def show(self, token=wsgi_api.MEMBER, status=200, volume=None):
        answer = self.expect(status, "GET", f"/volumes/{volume or self.volume}", token=token)
        return answer.body["volume"] if status == 200 else None

    def assert_not_offered(self, volume=None):
        self.assertEqual([], self.expect(200, "GET", "/volume-transfers").body["transfers"])
        self.assertNotEqual("awaiting-transfer", self.show(volume=volume)["status"])


class RefusalTest(TransferCase):
    """Volumes that are not offered, and what is not done with one that is."""

    def test_volume_that_is_not_available_is_not_offered(self):
        for state in ("error", "creating", "maintenance", "extending"):
            with self.subTest(state):
                volume = self.add_volume(state=state)
                self.assertIn(f"status is: {state}", self.offer(400, volume=volume))
                self.assert_not_offered(volume)

    def test_volume_with_attachment_of_any_state_is_not_offered(self):
        reserved = self.create_attachment(self.volume)
        self.assertIn("reserved", self.offer(400))
        self.expect(200, "DELETE", f"/attachments/{reserved}")
        connected = self.create_attachment(self.volume, connector={"host": "metal"})
        self.assertIn("status is: attaching", self.offer(400))
        self.expect(204, "POST", f"/attachments/{connected}/action", {"os-complete": None})
        self.assertIn("status is: in-use", self.offer(400))
        self.expect(200, "DELETE", f"/attachments/{connected}")
        with self.driver.raising(exception.BackendError("no", final=True), "grant"):
            body = {"attachment": {"volume_uuid": self.volume, "connector": {"host": "metal"}}}
            self.assertGreaterEqual(self.api.request("POST", "/attachments", body).status, 400)
        (failed,) = db_rows.list_attachments(self.volume)
        self.assertEqual("available", self.show()["status"])
        self.assertIn(failed["id"], self.offer(400))
        self.assert_not_offered()
        self.expect(200, "DELETE", f"/attachments/{failed['id']}")
        self.offer()

    def test_volume_held_by_an_older_call_is_not_offered(self):
        self.act(self.volume, "os-reserve")
        self.assertIn("status is: attaching", self.offer(400))
        self.act(self.volume, "os-unreserve")
        self.offer()

    def test_volume_that_is_copied_is_not_offered(self):
        self.add_volume(state="creating", source_volid=self.volume)
        self.assertIn("copied", self.offer(400))
        self.assert_not_offered()

    def test_snapshot_in_error_keeps_the_volume_unless_it_stays(self):
        broken = self.add_snapshot("error")
        self.assertIn(broken, self.offer(400))
        self.assert_not_offered()
        self.offer(no_snapshots=True)

    def test_offered_volume_is_used_for_nothing_else(self):
        snapshot = self.add_snapshot()
        self.offer()
        path = f"/volumes/{self.volume}"
        refused = [
            ("POST", "/attachments", {"attachment": {"volume_uuid": self.volume}}),
            ("POST", "/snapshots", {"snapshot": {"volume_id": self.volume, "force": True}}),
            ("POST", "/volumes", {"volume": {"source_volid": self.volume}}),
            ("POST", "/volume-transfers", {"transfer": {"volume_id": self.volume}}),
            ("DELETE", path, None),
            ("DELETE", f"{path}?cascade=true", None),
            *(
                ("POST", f"{path}/action", {name: body})
                for name, body in (
                    ("os-extend", {"new_size": 9}),
                    ("os-reserve", None),
                    ("os-attach", {"host_name": "metal", "mountpoint": "/dev/vdb"}),
                    ("os-initialize_connection", {"connector": {"host": "metal"}}),
                    ("os-volume_upload_image", {"image_name": "i"}),
                    ("os-update_readonly_flag", {"readonly": True}),
                    ("revert", {"snapshot_id": snapshot}),
                )
            ),
        ]
        for method, path, body in refused:
            with self.subTest(path=path, body=body):
                answer = self.api.request(method, path, body, version="volume 3.65")
                self.assertIn(answer.status, {400, 409}, answer.raw)
        self.assertEqual("awaiting-transfer", self.show()["status"])
        self.assertEqual([], db_rows.list_attachments(self.volume))

    def test_bad_input_is_refused_with_the_field(self):
        for body, field in (
            ({"transfer": {}}, "volume_id"),
            ({"transfer": {"volume_id": "x"}}, "volume_id"),
            ({"transfer": {"volume_id": self.volume, "name": " "}}, "name"),
            ({"transfer": {"volume_id": self.volume, "name": "n" * 256}}, "name"),
            ({"transfer": {"volume_id": self.volume, "no_snapshots": "maybe"}}, "no_snapshots"),
            ({"transfer": {"volume_id": self.volume, "auth_key": "k"}}, "auth_key"),
        ):
            answer = self.expect(400, "POST", "/volume-transfers", body)
            self.assertIn(field, answer.fault)
        older = {"transfer": {"volume_id": self.volume, "no_snapshots": True}}
        for path, version in (
            ("/os-volume-transfer", "volume 3.71"),
            ("/volume-transfers", "volume 3.54"),
        ):
            answer = self.expect(400, "POST", path, older, version=version)
            self.assertIn("no_snapshots", answer.fault)
        self.assert_not_offered()

    def test_volume_of_another_project_is_not_found(self):
        foreign = db_rows.add_volume(project_id=OTHERS)["id"]
        self.assertIn(foreign, self.offer(404, volume=foreign))


class AcceptTest(TransferCase):
    """What moves, and what does not."""

    def test_wrong_key_is_refused_and_changes_nothing(self):
        transfer = self.offer()
        for key in ("", "x", transfer["auth_key"][:-1], transfer["auth_key"].upper(), 7, "é"):
            answer = self.accept(transfer, 400, auth_key=key)
            self.assertIn("Invalid auth key", answer.fault)
        for key in (None, [], {}, True, 1.5, "k" * 256):
            self.assertIn("auth_key", self.accept(transfer, 400, auth_key=key).fault)
        self.assertEqual("awaiting-transfer", self.show()["status"])
        self.accept(transfer)

    def test_key_is_shown_once_and_not_stored(self):
        transfer = self.offer()
        key = transfer["auth_key"]
        self.assertRegex(key, r"\A[0-9a-f]{32}\Z")
        for path in ("", "/detail", f"/{transfer['id']}"):
            self.assertNotIn(key, f"{self.expect(200, 'GET', f'/volume-transfers{path}').raw}")
        row = transfer_store.get(transfer["id"], None)
        self.assertNotIn(key, f"{row}")
        again = self.offer(volume=self.add_volume())
        self.assertNotEqual(row["salt"], transfer_store.get(again["id"], None)["salt"])

    def test_volume_and_snapshots_belong_to_the_accepting_project_alone(self):
        snapshot = self.add_snapshot(name="s")
        transfer = self.offer()
        answer = self.accept(transfer)
        self.assertEqual({"id", "name", "volume_id", "links"}, answer.body["transfer"].keys())
        self.show(status=404)
        self.expect(404, "GET", f"/snapshots/{snapshot}")
        self.assertEqual("available", self.show(OTHER)["status"])
        self.assertEqual("mallory", self.show(OTHER)["user_id"])
        self.expect(200, "GET", f"/snapshots/{snapshot}", token=OTHER)
        self.accept(transfer, 404)
        for token in (wsgi_api.MEMBER, OTHER, wsgi_api.ADMIN):
            path = f"/volume-transfers/{transfer['id']}"
            self.expect(404, "GET", path, token=token)
        usage = {project: quotas.usage(project) for project in (wsgi_api.PROJECT, OTHERS)}
        self.assertEqual((0, 0), self.count(usage[wsgi_api.PROJECT]))
        self.assertEqual((1, 1), self.count(usage[OTHERS]))

    @staticmethod
    def count(usage):
        return usage["volumes"].total, usage["snapshots"].total

    def test_snapshots_stay_on_request_and_are_of_no_use_to_the_new_owner(self):
        snapshot = self.add_snapshot(size_gib=1)
        self.accept(self.offer(no_snapshots=True))
        self.expect(200, "GET", f"/snapshots/{snapshot}")
        self.expect(404, "GET", f"/snapshots/{snapshot}", token=OTHER)
        path = f"/volumes/{self.volume}"
        for snapshot_id in (snapshot, OTHERS):
            revert = {"revert": {"snapshot_id": snapshot_id}}
            answer = self.expect(400, "POST", f"{path}/action", revert, token=OTHER)
            self.assertIn("another project", answer.fault)
        self.assertEqual("available", self.show(OTHER)["status"])
        for query in ("", "?cascade=true"):
            answer = self.expect(400, "DELETE", f"{path}{query}", token=OTHER)
            self.assertNotIn(snapshot, answer.fault)
        # Nor do they move with the next transfer.
        offered = {"transfer": {"volume_id": self.volume}}
        answer = self.expect(202, "POST", "/os-volume-transfer", offered, token=OTHER)
        self.accept(answer.body["transfer"], token=f"carl:{'c' * 32}:member,reader")
        self.assertEqual(wsgi_api.PROJECT, snapshot_store.get(snapshot, None)["project_id"])
        self.assertEqual("c" * 32, volume_store.get(self.volume, None)["project_id"])

    def test_copy_of_a_snapshot_that_stays_shows_nothing_of_the_new_owner(self):
        public = type_store.create({"name": "open", "is_public": True, "extra_specs": {}})["id"]
        private = type_store.create({"name": "own", "is_public": False, "extra_specs": {}})["id"]
        type_store.add_access(private, OTHERS)
        volume = self.add_volume(volume_type_id=public)
        self.act(volume, "os-set_image_metadata", {"metadata": {"os_type": "linux"}}, status=200)
        body = {"snapshot": {"volume_id": volume}}
        snapshot = self.expect(202, "POST", "/snapshots", body).body["snapshot"]["id"]
        self.accept(self.offer(volume=volume, no_snapshots=True))
        for name, values, status in (
            ("os-set_image_metadata", {"metadata": {"secret": "x"}}, 200),
            ("os-set_bootable", {"bootable": True}, 200),
            ("os-retype", {"new_type": "own", "migration_policy": "never"}, 202),
        ):
            self.act(volume, name, values, status, token=OTHER)
        quotas.set_limits(wsgi_api.PROJECT, {"volumes_own": 0})
        copied = self.expect(202, "POST", "/volumes", {"volume": {"snapshot_id": snapshot}}).body
        copy = self.show(volume=copied["volume"]["id"])
        self.assertEqual(
            ("open", "false", {"os_type": "linux"}),
            (copy["volume_type"], copy["bootable"], copy["volume_image_metadata"]),
        )

    def test_quota_of_the_accepting_project_is_kept(self):
        kind = type_store.create({"name": "gold"})["id"]
        volume = self.add_volume(size_gib=3, volume_type_id=kind)
        self.add_snapshot(volume=volume, size_gib=3, volume_type_id=kind)
        transfer = self.offer(volume=volume)
        for limits, named in (
            ({"volumes": 0}, "volumes"),
            ({"gigabytes": 5}, "gigabytes"),
            ({"snapshots": 0}, "snapshots"),
            ({"volumes_gold": 0}, "volumes_gold"),
            ({"gigabytes_gold": 5}, "gigabytes_gold"),
            ({"snapshots_gold": 0}, "snapshots_gold"),
            ({"per_volume_gigabytes": 2}, "per_volume_gigabytes"),
        ):
            with self.subTest(limits):
                quotas.delete_limits(OTHERS)
                quotas.set_limits(OTHERS, limits)
                answer = self.accept(transfer, 413)
                self.assertIn(named, answer.fault)
                self.assertEqual("awaiting-transfer", self.show(volume=volume)["status"])
        quotas.delete_limits(OTHERS)
        quotas.set_limits(OTHERS, {"volumes": 1, "gigabytes": 6, "snapshots": 1})
        self.accept(transfer)

    def test_quota_counts_no_snapshot_that_stays(self):
        self.add_snapshot()
        quotas.set_limits(OTHERS, {"snapshots": 0, "gigabytes": 1})
        self.accept(self.offer(no_snapshots=True))

    def test_project_accepts_its_own_volume_within_its_quota(self):
        quotas.set_limits(wsgi_api.PROJECT, {"volumes": 1})
        self.accept(self.offer(), token=wsgi_api.MEMBER)
        self.assertEqual("available", self.show()["status"])

    def test_volume_of_a_private_type_needs_access_to_the_type(self):
        kind = type_store.create({"name": "ours", "is_public": False})["id"]
        volume = self.add_volume(volume_type_id=kind)
        transfer = self.offer(volume=volume)
        self.assertIn(kind, self.accept(transfer, 404).fault)
        type_store.add_access(kind, OTHERS)
        self.accept(transfer)

    def test_snapshot_that_has_stayed_before_gets_the_type_that_was_checked(self):
        private, public = (
            type_store.create({"name": name, "is_public": name == "open", "extra_specs": {}})["id"]
            for name in ("own", "open")
        )
        volume = self.add_volume(volume_type_id=public)
        snapshot = self.add_snapshot(volume=volume, volume_type_id=private)
        self.accept(self.offer(volume=volume))
        self.assertEqual(public, db_rows.get_snapshot(snapshot)["volume_type_id"])

    def test_snapshot_that_is_deleted_meanwhile_keeps_the_volume(self):
        snapshot = self.add_snapshot()
        transfer = self.offer()
        db_rows.change_snapshot(snapshot, state="deleting")
        self.assertIn(snapshot, self.accept(transfer, 400).fault)
        self.assertEqual("awaiting-transfer", self.show()["status"])

    def test_reader_accepts_nothing(self):
        transfer = self.offer()
        self.accept(transfer, 403, token=f"rita:{OTHERS}:reader")

    def test_messages_and_answers_of_keys_stay_in_the_former_project(self):
        body = {"volume": {"size": 1, "name": "private"}}
        answer = self.expect(202, "POST", "/volumes", body, idempotency_key="k1")
        made = answer.body["volume"]["id"]
        db_rows.change_volume(made, state="ready", status="available", owner=None)
        place = (made, wsgi_api.PROJECT, messages.CREATE, messages.NOT_CREATED, None)
        messages.create(messages.NewMessage(*place), kept_for=999)
        self.accept(self.offer(volume=made))
        self.assertEqual([], self.expect(200, "GET", "/messages", token=OTHER).body["messages"])
        answer = self.api.request("POST", "/volumes", body, idempotency_key="k1")
        self.assertGreaterEqual(answer.status, 400, answer.raw)
        answer = self.expect(202, "POST", "/volumes", body, token=OTHER, idempotency_key="k1")
        self.assertNotEqual(made, answer.body["volume"]["id"])


class EndTest(TransferCase):
    """How a transfer ends without being accepted."""

    def test_deleted_transfer_makes_the_volume_available(self):
        transfer = self.offer()
        path = f"/volume-transfers/{transfer['id']}"
        self.expect(404, "DELETE", path, token=OTHER)
        self.expect(403, "DELETE", path, token=wsgi_api.READER)
        self.expect(202, "DELETE", path)
        self.assertEqual("available", self.show()["status"])
        self.accept(transfer, 404)
        self.expect(404, "DELETE", path)

    def test_reset_status_ends_the_transfer(self):
        for status in ("available", "error", "maintenance"):
            volume = self.add_volume()
            transfer = self.offer(volume=volume)
            reset = {"status": status}
            self.act(volume, "os-reset_status", reset, token=wsgi_api.ADMIN)
            self.assertEqual(status, self.show(volume=volume)["status"])
            self.accept(transfer, 404)
            self.assert_not_offered(volume)
        refused = {"status": "awaiting-transfer"}
        self.act(self.volume, "os-reset_status", refused, 400, token=wsgi_api.ADMIN)

    def test_volume_deleted_by_force_has_no_transfer(self):
        transfer = self.offer()
        self.act(self.volume, "os-force_delete", token=wsgi_api.ADMIN)
        self.accept(transfer, 404)
        self.assertEqual([], self.expect(200, "GET", "/volume-transfers").body["transfers"])

    def test_request_of_the_former_project_finds_nothing(self):
        self.add_snapshot()
        volume, project = self.volume, wsgi_api.PROJECT
        owner = {"project_id": project, "user_id": "u"}
        self.accept(self.offer())
        for call in (
            functools.partial(volume_store.transition, volume, Event.DELETE, project_id=project),
            functools.partial(volume_store.delete_with_snapshots, volume, project),
            functools.partial(volume_store.extend, volume, project, 9),
            functools.partial(volume_store.revert, volume, "any", project),
            functools.partial(transfer_store.create, volume, project, PLAIN),
            functools.partial(attachment_store.reserve, volume, owner),
            functools.partial(attachment_store.reserve, volume, owner, may_be_free=False),
            functools.partial(legacy.reserve, volume, project, "u"),
        ):
            with self.assertRaises(exception.VolumeNotFound):
                call()
        self.assertEqual("available", self.show(OTHER)["status"])


class ListTest(TransferCase):
    """Lists: pages, filters, projects."""

    def setUp(self):
        super().setUp()
        names = ("c", "a", "b")
        self.offered = {name: self.offer(volume=self.add_volume(), name=name) for name in names}

    def names(self, query="", token=wsgi_api.MEMBER, version="volume 3.71", path=""):
        address = f"{path or '/volume-transfers/detail'}{query}"
        answer = self.expect(200, "GET", address, token=token, version=version)
        return [item["name"] for item in answer.body["transfers"]]

    def test_list_is_sorted_by_creation_and_pages_follow_the_marker(self):
        self.assertEqual(["b", "a", "c"], self.names())
        self.assertEqual(["a", "b", "c"], self.names("?sort=name:asc"))
        first = self.expect(200, "GET", "/volume-transfers?limit=2&sort=name:asc").body
        self.assertEqual(["a", "b"], [item["name"] for item in first["transfers"]])
        ((link,),) = [first["transfers_links"]]
        query = link["href"].partition("?")[2]
        self.assertEqual(["c"], self.names(f"?{query}"))
        self.assertEqual(["c"], self.names("?offset=2"))

    def test_older_versions_ignore_sort_keys_and_markers(self):
        marker = self.offered["a"]["id"]
        query = f"?sort=name:asc&marker={marker}&limit=2&offset=1"
        for options in ({"version": "volume 3.58"}, {"path": "/os-volume-transfer"}):
            self.assertEqual(["a", "b"], self.names(query, **options))

    def test_full_page_without_markers_has_no_link_that_would_lead_to_itself(self):
        for path, version in (("/os-volume-transfer", 71), ("/volume-transfers", 58)):
            address = f"{path}?limit=1"
            page = self.expect(200, "GET", address, version=f"volume 3.{version}").body
            self.assertEqual([{"transfers"}, 1], [{*page}, len(page["transfers"])], path)

    def test_filters_match_whole_values(self):
        for query, expected in (
            ("?name=a", ["a"]),
            (f"?volume_id={self.offered['b']['volume_id']}", ["b"]),
            (f"?id={self.offered['b']['id']}", ["b"]),
            ("?accepted=true", []),
            ("?accepted=false&no_snapshots=false&name=c", ["c"]),
            ("?no_snapshots=true", []),
            (f"?source_project_id={wsgi_api.PROJECT}&name=c", ["c"]),
            (f"?destination_project_id={OTHERS}", []),
            (f"?project_id={OTHERS}", []),
        ):
            with self.subTest(query):
                self.assertEqual(expected, self.names(query))
        for query in ("?nonsense=1", "?accepted=maybe", "?sort=salt", "?limit=-1"):
            with self.subTest(query):
                self.expect(400, "GET", f"/volume-transfers{query}")
        self.expect(404, "GET", "/volume-transfers?marker=x")

    def test_other_projects_see_nothing_and_administrators_see_all(self):
        self.assertEqual([], self.names(token=OTHER))
        self.assertEqual([], self.names("?all_tenants=1", token=OTHER))
        admin = f"root:{OTHERS}"
        self.assertEqual([], self.names(token=admin))
        self.assertEqual(["b", "a", "c"], self.names("?all_tenants=1", token=admin))
        self.expect(404, "GET", f"/volume-transfers/{self.offered['a']['id']}", token=OTHER)
        self.expect(200, "GET", f"/volume-transfers/{self.offered['a']['id']}", token=admin)


class NotificationTest(TransferCase):
    """Notifications of each call, without the key."""

    def test_each_call_notifies_of_its_start_and_end(self):
        captured = captured_notifications.use(self)
        transfer = self.offer()
        self.expect(202, "DELETE", f"/volume-transfers/{transfer['id']}")
        transfer = self.offer()
        self.accept(transfer)
        sent = captured.messages()
        verbs = [item["event_type"].removeprefix("volume.transfer.") for item in sent]
        expected = [
            f"{verb}.{end}"
            for verb in ("create", "delete", "create", "accept")
            for end in ("start", "end")
        ]
        self.assertEqual(expected, verbs)
        self.assertEqual(wsgi_api.PROJECT, sent[-2]["payload"]["tenant_id"])
        self.assertEqual(OTHERS, sent[-1]["payload"]["tenant_id"])
        self.assertNotIn(transfer["auth_key"], f"{sent}")


class RacesOnSqlite(DatabaseRaceCase):
    """Calls at the same moment have one winner."""

    def offer(self, **values):
        volume = db_rows.add_volume(**values)["id"]
        return transfer_store.create(volume, db_rows.PROJECT, PLAIN).row

    @staticmethod
    def acceptor(number):
        return transfer_store.Acceptor(f"p{number}", "u", sees_all_types=False)

    def accept(self, row, number):
        return functools.partial(transfer_store.accept, row, self.acceptor(number))

    def test_volume_is_offered_once(self):
        volume = db_rows.add_volume()["id"]
        create = functools.partial(transfer_store.create, volume, db_rows.PROJECT, PLAIN)
        outcomes = race_case.outcomes(*[create] * 20)
        self.assertEqual({"NewTransfer": 1, "InvalidVolume": 19}, outcomes)

    def test_transfer_is_accepted_once(self):
        row = self.offer()
        snapshot = db_rows.add_snapshot(row["volume_id"], "available")["id"]
        outcomes = race_case.outcomes(*(self.accept(row, number) for number in range(20)))
        self.assertEqual({"NoneType": 1, "TransferNotFound": 19}, outcomes)
        volume = db_rows.get_volume(row["volume_id"])
        self.assertEqual("available", volume["status"])
        self.assertEqual(volume["project_id"], db_rows.get_snapshot(snapshot)["project_id"])

    def test_transfer_is_accepted_or_deleted(self):
        for _ in range(10):
            row = self.offer()
            delete = functools.partial(transfer_store.delete, row)
            outcomes = race_case.outcomes(self.accept(row, 1), delete, self.accept(row, 2), delete)
            self.assertEqual({"NoneType": 1, "TransferNotFound": 3}, outcomes)
            self.assertEqual("available", db_rows.get_volume(row["volume_id"])["status"])

    def test_volume_is_accepted_or_reset(self):
        for _ in range(10):
            row = self.offer()
            reset = functools.partial(volume_store.reset, row["volume_id"], "error", None)
            outcomes = race_case.outcomes(self.accept(row, 1), reset)
            volume = db_rows.get_volume(row["volume_id"])
            accepted = volume["project_id"] == "p1"
            self.assertEqual(0 if accepted else 1, outcomes["TransferNotFound"], outcomes)
            self.assertEqual("error", volume["status"])
            with self.assertRaises(exception.TransferNotFound):
                transfer_store.get(row["id"], None)

    def test_quota_is_kept_by_acceptances_at_once(self):
        quotas.set_limits("p1", {"volumes": 3, "snapshots": 5})
        rows = [self.offer() for _ in range(10)]
        for row in rows:
            db_rows.add_snapshot(row["volume_id"], "available")
        outcomes = race_case.outcomes(*(self.accept(row, 1) for row in rows))
        self.assertEqual({"NoneType": 3, "QuotaExceeded": 7}, outcomes)
        usage = quotas.usage("p1")
        self.assertEqual((3, 3), (usage["volumes"].total, usage["snapshots"].total))


class RacesOnMariadb(RacesOnSqlite):
    kind = "mariadb"


class RacesOnPostgresql(RacesOnSqlite):
    kind = "postgresql"
