# SPDX-License-Identifier: Apache-2.0
"""Attachments compared with servers of a fake Compute, over HTTP."""

import datetime
from unittest import mock

from attachd import compute as compute_api
from attachd.db import models
from attachd.manager import detach
from attachd.manager.audit import compute
from attachd.manager.audit.rules import REPAIRED, Kind
from attachd.tests.fixtures import backends, conf_fixture, db_rows, fake_nova

LONG_AGO = models.now() - datetime.timedelta(days=1)
SERVER, OTHER, GONE, NEW = (f"{number}1111111-2222-3333-4444-555555555555" for number in "1239")
UNKNOWN = "99999999-2222-3333-4444-555555555555"


class ComputeCase(backends.BackendCase):
    """A server with a volume about which both databases agree."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(compute, "_INTERVAL", 0.0))
        self.nova = fake_nova.FakeNova(self)
        self.set(endpoint_override=self.nova.url, auth_type="none")
        self.own = self.attach(SERVER)
        self.volume = self.own["volume_id"]
        self.nova.add_attachment(SERVER, self.volume, self.own["id"])

    def set(self, **options):
        for name, value in options.items():
            conf_fixture.override(self, name, value, "nova")

    def attach(self, server, **values):
        """Insert an attachment, of which Compute knows nothing yet."""
        volume = values.pop("volume_id", None) or db_rows.add_volume()["id"]
        fields = {"state": "attached", "instance_uuid": server, "by_service": True}
        row = db_rows.add_attachment(volume, **{**fields, "created_at": LONG_AGO, **values})
        db_rows.change_attachment(row["id"], updated_at=LONG_AGO)
        return row

    def result(self, *repaired, **options):
        reader = compute_api.ComputeReader(compute_api.load_credentials())
        return compute.compare(reader, repaired, **options)

    def found(self, **options):
        result = self.result(**options)
        self.assertEqual([], result.not_compared)
        return [(difference.kind, difference.volume_id) for difference in result.differences]

    def paths(self):
        return [path.removeprefix("/v2.1/servers") for path, _headers in self.nova.requests]


class CompareTest(ComputeCase):
    def test_compare_equal_views_sends_one_request(self):
        self.assertEqual([], self.found())
        self.assertEqual(["/detail?all_tenants=1"], self.paths())

    def test_compare_thoroughly_reads_each_server_with_a_volume(self):
        self.nova.add_server(OTHER)
        self.assertEqual([], self.found(is_thorough=True))
        self.assertEqual([f"/{SERVER}", f"/{SERVER}/os-volume_attachments"], self.paths()[1:])

    def test_compare_server_gone_finds_server_gone(self):
        row = self.attach(GONE)
        (difference,) = self.result().differences
        self.assertEqual(
            (Kind.SERVER_GONE, "compute", row["volume_id"], ""),
            (difference.kind, difference.backend, difference.volume_id, difference.outcome),
        )
        for text in (row["id"], GONE, "host compute-1", "attached"):
            self.assertIn(text, difference.found)
        self.assertEqual(2, self.paths().count(f"/{GONE}"))

    def test_compare_server_that_is_not_listed_but_exists_finds_no_difference(self):
        row = self.attach(OTHER)
        self.nova.add_attachment(OTHER, row["volume_id"], row["id"])
        self.nova.unlisted.add(OTHER)
        self.assertEqual([], self.found())

    def test_compare_server_that_is_listed_but_not_shown_is_not_compared(self):
        with mock.patch.object(compute.ComputeReader, "find_server", return_value=None):
            result = self.result(is_thorough=True)
        self.assertEqual([], result.differences)
        self.assertRegex(result.not_compared[0], f"^Server {SERVER}: Compute has listed it")

    def test_compare_server_in_down_cell_is_not_compared(self):
        self.attach(OTHER)
        self.nova.servers[OTHER] = None
        for self.nova.unlisted in (set(), {OTHER}):
            self.assert_cell_down(self.result())

    def assert_cell_down(self, result):
        self.assertEqual([], result.differences)
        self.assertRegex(result.not_compared[0], f"Server {OTHER}: its cell does not answer")

    def test_compare_attachment_changed_a_moment_ago_finds_no_difference(self):
        for server in (GONE, SERVER):
            row = self.attach(server)
            db_rows.change_attachment(row["id"], updated_at=models.now())
        self.assertEqual([], self.found())

    def test_compare_attachment_in_progress_finds_no_difference(self):
        for state in ("connecting", "withdrawing", "disconnecting"):
            self.attach(GONE, state=state)
        self.assertEqual([], self.found())

    def test_compare_attachment_without_server_or_with_agent_finds_no_difference(self):
        self.attach(None)
        self.attach(GONE, agent="h1")
        self.assertEqual([], self.found())

    def test_compare_reservation_of_gone_server_finds_server_gone(self):
        row = self.attach(GONE, state="reserved")
        self.assertEqual([(Kind.SERVER_GONE, row["volume_id"])], self.found())

    def test_compare_attachment_that_server_does_not_have_finds_unlisted(self):
        row = self.attach(SERVER)
        self.assertEqual([(Kind.UNLISTED_ATTACHMENT, row["volume_id"])], self.found())

    def test_compare_second_attachment_of_same_volume_names_the_first(self):
        row = self.attach(SERVER, volume_id=self.volume)
        (difference,) = self.result().differences
        self.assertEqual(Kind.UNLISTED_ATTACHMENT, difference.kind)
        self.assertIn(f"Attachment {row['id']}", difference.found)
        self.assertIn(f"lists attachment {self.own['id']} instead", difference.found)

    def test_compare_unknown_attachment_finds_unknown(self):
        for volume in (db_rows.add_volume()["id"], UNKNOWN):
            self.nova.add_attachment(OTHER, volume, NEW)
            (difference,) = self.result().differences
            self.assertEqual(
                (Kind.UNKNOWN_ATTACHMENT, volume), (difference.kind, difference.volume_id)
            )
            missing = "volume" if volume == UNKNOWN else "attachment"
            self.assertIn(f"there is no such {missing}", difference.found)
            self.nova.remove_server(OTHER)

    def test_compare_volume_without_attachment_id_is_compared_by_volume(self):
        self.nova.add_attachment(SERVER, self.volume, None)
        self.assertEqual([], self.found(is_thorough=True))
        volume = db_rows.add_volume()["id"]
        self.nova.add_attachment(SERVER, volume, None)
        self.assertEqual([(Kind.UNKNOWN_ATTACHMENT, volume)], self.found())

    def test_compare_replaced_id_is_found_thoroughly(self):
        self.nova.add_attachment(SERVER, self.volume, UNKNOWN)
        self.assertEqual([], self.found())
        self.assertEqual(
            {(Kind.UNLISTED_ATTACHMENT, self.volume), (Kind.UNKNOWN_ATTACHMENT, self.volume)},
            set(self.found(is_thorough=True)),
        )

    def test_compare_attachment_of_other_server_finds_wrong_server(self):
        self.nova.add_attachment(OTHER, self.volume, self.own["id"])
        (difference,) = self.result().differences
        self.assertEqual(Kind.WRONG_SERVER, difference.kind)
        self.assertRegex(difference.found, f"of server {SERVER}: .* of server {OTHER}")

    def test_compare_attachment_of_other_volume_finds_wrong_server(self):
        self.nova.add_attachment(OTHER, UNKNOWN, self.attach(OTHER)["id"])
        (difference,) = self.result().differences
        self.assertEqual(Kind.WRONG_SERVER, difference.kind)
        self.assertIn(f"lists it with volume {UNKNOWN}", difference.found)

    def test_compare_server_on_other_host_finds_wrong_host(self):
        self.nova.servers[SERVER] = {"host": "compute-2"}
        (difference,) = self.result().differences
        self.assertEqual(Kind.WRONG_HOST, difference.kind)
        self.assertRegex(difference.found, "host compute-1,.* on host compute-2.$")

    def test_compare_bare_metal_server_by_its_address_finds_no_difference(self):
        db_rows.change_attachment(self.own["id"], host="192.0.2.7", updated_at=LONG_AGO)
        self.assertEqual([], self.found(is_thorough=True))

    def test_compare_server_without_host_finds_no_difference(self):
        self.nova.servers[SERVER] = {"host": None}
        self.assertEqual([], self.found())

    def test_compare_server_during_live_migration_finds_no_difference(self):
        self.attach(SERVER, volume_id=self.volume, host="compute-2")
        self.nova.servers[SERVER] = {"host": "compute-2", "task_state": "migrating"}
        self.nova.add_attachment(SERVER, UNKNOWN, NEW)
        self.assertEqual([], self.found())

    def test_compare_migration_that_begins_meanwhile_finds_no_difference(self):
        self.attach(SERVER, volume_id=self.volume)

        def migrate(path):
            if path.endswith("os-volume_attachments"):
                self.nova.servers[SERVER] = {"task_state": "migrating"}

        self.nova.before_response = migrate
        self.assertEqual([], self.found())

    def test_compare_attachment_changed_between_reads_finds_no_difference(self):
        row = self.attach(SERVER)
        generations = iter(range(1, 9))
        self.nova.before_response = lambda _path: db_rows.change_attachment(
            row["id"], generation=next(generations)
        )
        self.assertEqual([], self.found())

    def test_compare_detach_between_reads_finds_no_difference(self):
        self.nova.add_attachment(SERVER, UNKNOWN, NEW)

        def detach(path):
            if self.paths().count(f"/{SERVER}") == 2:
                self.nova._held.pop((SERVER, UNKNOWN), None)

        self.nova.before_response = detach
        self.assertEqual([], self.found())


class TroubleTest(ComputeCase):
    def setUp(self):
        super().setUp()
        self.rows = [self.attach(server) for server in (OTHER, GONE)]

    def assert_not_compared(self, *says, found=()):
        result = self.result()
        self.assertEqual(list(found), [difference.kind for difference in result.differences])
        self.assertEqual(len(says), len(result.not_compared), result.not_compared)
        for text, reason in zip(says, result.not_compared, strict=True):
            self.assertRegex(reason, text)

    def test_compare_with_compute_down_is_not_compared(self):
        self.nova.close()
        self.assert_not_compared("^The list of servers is not complete: Compute cannot be asked")

    def test_compare_with_silent_compute_sends_one_request(self):
        self.set(read_timeout=0.3)  # it never answers
        self.nova.stop_responding()
        self.assert_not_compared("longer to answer")
        self.assertEqual(1, len(self.nova.requests))

    def test_compare_with_denied_list_is_not_compared(self):
        self.nova.respond_with(403)
        self.assert_not_compared("role of an administrator")
        self.assertEqual(1, len(self.nova.requests))

    def test_compare_with_failing_list_finds_no_server_gone(self):
        self.nova.page_size = 1
        self.nova.add_server(OTHER)
        self.nova.respond_to(f"marker={SERVER}", 500)
        self.attach(SERVER)
        self.assert_not_compared("list of servers .*status 500", found=[Kind.UNLISTED_ATTACHMENT])

    def test_compare_with_failing_server_compares_the_others(self):
        self.nova.respond_to(f"/{OTHER}", 500)
        self.assert_not_compared(f"^Server {OTHER}: .*status 500", found=[Kind.SERVER_GONE])

    def test_compare_ends_with_first_unreachable_server(self):
        self.nova.respond_to(f"/{OTHER}", 403)
        self.assert_not_compared(f"^Server {OTHER} and those after it: ")
        self.assertNotIn(f"/{GONE}", self.paths())

    def test_compare_at_limit_of_requests_keeps_what_is_confirmed(self):
        self.set(audit_requests=3)
        self.enterContext(mock.patch.object(compute, "_BATCH", 1))
        self.assert_not_compared(
            r"^Server .* and those after it: .*3 requests", found=[Kind.SERVER_GONE]
        )

    def test_compare_without_hosts_of_servers_says_so(self):
        real = self.nova._server_body
        self.nova._server_body = lambda server: {
            name: value for name, value in real(server).items() if not name.endswith(":host")
        }
        self.assert_not_compared("^The hosts of servers", found=[Kind.SERVER_GONE] * 2)


class RepairTest(ComputeCase):
    def setUp(self):
        super().setUp()
        self.row = self.attach(GONE, connector=db_rows.CONNECTOR)

    def change(self, **values):
        db_rows.change_attachment(self.row["id"], updated_at=LONG_AGO, **values)

    def repair(self):
        (difference,) = self.result(self.backend).differences
        return difference.outcome

    def assert_kept(self, says):
        self.assertRegex(self.repair(), says)
        self.assertEqual("attached", db_rows.get_attachment(self.row["id"])["state"])
        self.assertEqual([], self.driver.methods)

    def test_repair_deletes_attachment_of_gone_server_only(self):
        self.assertEqual(REPAIRED, self.repair())
        self.assertEqual([self.own["id"]], [row["id"] for row in db_rows.list_attachments()])
        self.assertEqual(["revoke"], self.driver.methods)
        self.assertEqual("available", db_rows.get_volume(self.row["volume_id"])["status"])

    def test_compare_without_repair_keeps_attachment(self):
        self.assertEqual("", self.result().differences[0].outcome)
        self.assertEqual([], self.driver.methods)

    def test_repair_of_other_differences_does_nothing(self):
        db_rows.remove_attachment(self.row["id"])
        self.attach(SERVER)
        self.nova.add_attachment(SERVER, UNKNOWN, NEW)
        outcomes = [found.outcome for found in self.result(self.backend).differences]
        self.assertEqual(2, len(outcomes))
        for outcome in outcomes:
            self.assertIn("Kept: ", outcome)
        self.assertEqual([], self.driver.methods)

    def test_repair_deletes_reservation_without_driver(self):
        self.change(state="reserved", connector=None)
        self.assertEqual(REPAIRED, self.repair())
        self.assertEqual([], self.driver.methods)

    def test_repair_with_compute_of_other_database_keeps_attachment(self):
        self.nova.remove_server(SERVER)
        outcomes = [found.outcome for found in self.result(self.backend).differences]
        self.assertEqual(2, len(outcomes))
        for outcome in outcomes:
            self.assertIn("Compute has no volume of this database", outcome)
        self.assertEqual([], self.driver.methods)

    def test_repair_with_other_consumers_keeps_attachment(self):
        self.set(unknown_to_compute="creator")
        self.assert_kept("another client than Compute")

    def test_repair_of_attachment_made_by_user_keeps_it(self):
        self.change(by_service=None)
        self.assert_kept("another client than Compute")

    def test_repair_at_other_backend_keeps_attachment(self):
        db_rows.change_volume(self.row["volume_id"], host="there@fake#pool")
        self.assert_kept("with the managers of there@fake#pool")

    def test_repair_at_backend_that_is_down_keeps_attachment(self):
        self.backend.error = "No storage."
        self.assert_kept("No storage.")

    def test_repair_of_attachment_changed_at_last_moment_keeps_it(self):
        real = compute._repair

        def change(*args, **kwargs):
            db_rows.change_attachment(self.row["id"], generation=7)
            return real(*args, **kwargs)

        with mock.patch.object(compute, "_repair", change):
            self.assert_kept("cannot disconnect")

    def test_repair_of_attachment_deleted_at_last_moment_is_done(self):
        real = compute._repair

        def delete(*args, **kwargs):
            db_rows.remove_attachment(self.row["id"])
            return real(*args, **kwargs)

        with mock.patch.object(compute, "_repair", delete):
            self.assertEqual(REPAIRED, self.repair())

    def test_repair_with_failing_backend_returns_reason(self):
        with self.driver.failing("revoke"):
            outcome = self.repair()
        self.assertIn("The backend failed", outcome)
        state = db_rows.get_attachment(self.row["id"])["state"]
        self.assertEqual("disconnect_failed", state)


class DetachInComputeTest(ComputeCase):
    """Compute lists an attachment that attachd has deleted, of the only server with a volume."""

    def setUp(self):
        super().setUp()
        detach.detach(self.backend, self.own["id"], self.volume)

    def repair(self):
        (difference,) = self.result(self.backend).differences
        self.assertEqual(Kind.UNKNOWN_ATTACHMENT, difference.kind)
        return difference.outcome

    def test_repair_has_compute_detach_the_volume(self):
        self.assertEqual(REPAIRED, self.repair())
        self.assertEqual(f"/{SERVER}/os-volume_attachments/{self.volume}", self.paths()[-1])
        self.assertEqual([], self.found(is_thorough=True))

    def test_compare_without_repair_asks_compute_for_nothing(self):
        self.assertEqual([(Kind.UNKNOWN_ATTACHMENT, self.volume)], self.found())
        self.assertEqual([(Kind.UNKNOWN_ATTACHMENT, self.volume)], self.found())

    def test_refusal_of_compute_is_the_outcome(self):
        path = f"/os-volume_attachments/{self.volume}"
        self.nova.respond_to(path, 403, b'{"forbidden": {"message": "Policy does not allow"}}')
        self.assertRegex(self.repair(), "Kept: Compute answers DELETE .* 403: .*Policy does not")

    def test_attachment_of_another_server_or_volume_is_kept(self):
        self.nova.remove_server(SERVER)
        other = db_rows.add_volume()["id"]
        for server, volume in ((OTHER, self.volume), (SERVER, other)):
            with self.subTest(server=server):
                self.nova.add_attachment(server, volume, self.own["id"])
                self.assertIn("Kept: no event says", self.repair())
                self.nova.remove_server(server)
