# SPDX-License-Identifier: Apache-2.0
"""Tests of multiattach volumes with legacy actions and the attachments API."""

import itertools

from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase

BOB = f"bob:{wsgi_api.PROJECT}:member,reader"
SERVERS = [f"{number}" * 8 + "-1111-4111-8111-111111111111" for number in range(1, 5)]
BROKEN = ("connecting", "connected", "connect_unknown", "disconnecting", "disconnect_failed")


def connector(host):
    return {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}


class Case(ApiCase):
    specs: dict[str, str] = {}

    def setUp(self):
        super().setUp()
        kind = self.create_type("shared", {"multiattach": "<is> True", **self.specs})
        self.volume = db_rows.add_volume(multiattach=True, volume_type_id=kind)["id"]

    def let_in(self, host, **more):
        """Reserve the volume and let a host in; return what the backend calls it."""
        self.act(self.volume, "os-reserve", **more)
        return self.open(host, **more)

    def open(self, host, **more):
        sent = {"connector": connector(host)}
        result = self.act(self.volume, "os-initialize_connection", sent, status=200, **more).body
        return result["connection_info"]["data"]["attachment_id"]

    def shut(self, host, **more):
        self.act(self.volume, "os-terminate_connection", {"connector": connector(host)}, **more)

    def attach(self, server, mode=None, **more):
        """Attach for a server; return the attachment id."""
        said = {"instance_uuid": server, "mountpoint": "/dev/vdb"} | (
            {"mode": mode} if mode else {}
        )
        self.act(self.volume, "os-attach", said, **more)
        (attachment,) = [r["id"] for r in self.held("legacy") if r["instance_uuid"] == server]
        return attachment

    def held(self, *kinds):
        return [row for row in db_rows.list_attachments(self.volume) if row["kind"] in kinds]

    def detach(self, attachment, **more):
        self.act(self.volume, "os-detach", {"attachment_id": attachment}, **more)

    def assert_free(self):
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual([], db_rows.list_attachments(self.volume))
        self.assertEqual("available", db_rows.get_volume(self.volume)["status"])


class WhoseTest(Case):
    """Two connections start before an os-attach names a server."""

    def test_legacy_terminate_connection_of_two_users_works_in_either_order(self):
        for first, second in (({}, {"token": BOB}), ({"token": BOB}, {})):
            one = self.let_in("compute-1", **first)
            two = self.let_in("compute-2", **second)
            a = self.attach(SERVERS[0], **first)
            b = self.attach(SERVERS[1], **second)
            self.detach(a, **first)
            self.assertEqual({two}, self.driver.granted())
            self.assertNotIn(one, self.driver.granted())
            self.detach(b, **second)
            self.assert_free()

    def test_legacy_terminate_connection_of_one_user_leaves_nothing(self):
        opened = {self.let_in("compute-1"), self.let_in("compute-2")}
        a, b = self.attach(SERVERS[0]), self.attach(SERVERS[1])
        self.detach(a)
        self.assertEqual(opened, self.driver.granted())
        self.detach(b)
        self.assert_free()

    def test_legacy_terminate_connection_closes_exactly_the_named_host(self):
        self.let_in("compute-1")
        two = self.let_in("compute-2")
        a, b = self.attach(SERVERS[0]), self.attach(SERVERS[1])
        self.shut("compute-1")
        self.detach(a)
        self.assertEqual({two}, self.driver.granted())
        self.shut("compute-2")
        self.detach(b)
        self.assert_free()

    def test_legacy_terminate_connection_of_two_servers_of_a_host_is_one_by_one(self):
        attached = {}
        for server in SERVERS[:2]:
            opened = self.let_in("compute-1")
            attached[self.attach(server)] = opened
        (a, one), (b, two) = attached.items()
        self.shut("compute-1")
        self.assertEqual({one, two}, self.driver.granted())
        self.detach(a)
        self.assertEqual({two}, self.driver.granted())
        self.shut("compute-1")
        self.detach(b)
        self.assert_free()

    def test_legacy_terminate_connection_late_keeps_connections_of_others(self):
        self.let_in("compute-1")
        self.shut("compute-1")
        self.act(self.volume, "os-reserve", token=BOB)
        for late in ("os-unreserve", "os-detach"):
            self.act(self.volume, late)
        self.shut("compute-1")
        self.assertEqual(["bob"], [row["user_id"] for row in self.held("hold")])
        two = self.open("compute-2", token=BOB)
        self.act(self.volume, "os-unreserve")
        self.assertEqual({two}, self.driver.granted())
        self.act(self.volume, "os-unreserve", token=BOB)
        self.assert_free()

    def test_legacy_ordinary_volume_has_one_holder_after_repeated_calls(self):
        db_rows.change_volume(self.volume, multiattach=False, volume_type_id=None)
        self.let_in("compute-1")
        self.shut("compute-1")
        self.assert_free()
        self.act(self.volume, "os-reserve")
        self.shut("compute-1")
        self.assertEqual("attaching", db_rows.get_volume(self.volume)["status"])
        self.act(self.volume, "os-unreserve")
        self.assert_free()


class MixedTest(Case):
    """One attachment of each way to make them, each deleted by a call of the other way."""

    def begin(self):
        """Attach three; return the id of each, and what the backend calls its host."""
        wanted = {"volume_uuid": self.volume, "instance_uuid": SERVERS[0]}
        wanted["connector"] = connector("compute-1")
        answer = self.api.request("POST", "/attachments", {"attachment": wanted})
        new = answer.body["attachment"]["id"]
        self.api.request("POST", f"/attachments/{new}/action", {"os-complete": None})
        by_server = self.let_in("compute-2")
        server = self.attach(SERVERS[1])
        by_host = self.let_in("compute-3")
        self.act(self.volume, "os-attach", {"host_name": "compute-3", "mountpoint": "/mnt"})
        (host,) = [r["id"] for r in self.held("legacy") if r["instance_uuid"] is None]
        return {new: new, server: by_server, host: by_host}

    def delete(self, attachment):
        path = f"/attachments/{attachment}"
        self.assertEqual(200, self.api.request("DELETE", path).status)

    def test_legacy_and_new_attachments_detach_separately_in_every_order(self):
        for order in itertools.permutations(range(3)):
            reached = self.begin()
            self.assertEqual(set(reached.values()), self.driver.granted())
            every = list(reached)
            calls = {every[0]: self.detach, every[1]: self.delete, every[2]: self.delete}
            for item in (every[number] for number in order):
                calls[item](item)
                del reached[item]
                self.assertEqual(set(reached.values()), self.driver.granted())
                seen = self.api.request("GET", f"/volumes/{self.volume}").body["volume"]
                self.assertEqual("in-use" if reached else "available", seen["status"])
            self.assert_free()

    def test_os_force_detach_without_id_lists_several_attachments(self):
        reached = self.begin()
        fault = self.act(
            self.volume, "os-force_detach", {}, status=400, token=wsgi_api.ADMIN
        ).fault
        for item in reached:
            self.assertIn(f"attachment {item}", fault)
        self.assertEqual(set(reached.values()), self.driver.granted())

    def test_os_force_detach_removes_one_attachment_in_each_state(self):
        for state in BROKEN:
            reached = self.begin()
            attachment, *others = reached
            db_rows.change_attachment(attachment, state=state)
            self.act(
                self.volume, "os-force_detach", {"attachment_id": attachment}, token=wsgi_api.ADMIN
            )
            self.assertEqual({reached[other] for other in others}, self.driver.granted(), state)
            for other in others:
                self.act(
                    self.volume, "os-force_detach", {"attachment_id": other}, token=wsgi_api.ADMIN
                )
            self.assert_free()


class OneWriterTest(Case):
    """The type allows one writer."""

    specs = {"mode": "RO"}

    def modes(self):
        found = db_rows.list_attachments(self.volume)
        return {row["host"]: row["mode"] for row in found if row["kind"] == "connection"}

    def test_one_writer_type_gives_the_first_host_write_access_with_any_calls(self):
        self.let_in("compute-1")
        self.let_in("compute-2", token=BOB)
        self.assertEqual({"compute-1": "rw", "compute-2": "ro"}, self.modes())
        fault = self.act(
            self.volume,
            "os-attach",
            {"instance_uuid": SERVERS[1], "mountpoint": "m", "mode": "rw"},
            status=400,
            token=BOB,
        ).fault
        self.assertRegex(fault, "one writer.*compute-1")
        reader = self.attach(SERVERS[1], token=BOB)
        writer = self.attach(SERVERS[0], mode="rw")
        shown = {item: self.shown(item) for item in (reader, writer)}
        self.assertEqual({reader: "ro", writer: "rw"}, shown)
        wanted = {"volume_uuid": self.volume, "instance_uuid": SERVERS[2], "mode": "rw"}
        refused = self.api.request("POST", "/attachments", {"attachment": wanted})
        self.assertEqual(400, refused.status, refused.raw)

    def shown(self, attachment):
        answer = self.api.request("GET", f"/attachments/{attachment}")
        return answer.body["attachment"]["attach_mode"]

    def test_one_writer_type_counts_unenforced_reader_as_writer(self):
        self.let_in("compute-1")
        attachment_id = self.attach(SERVERS[0], mode="ro")
        self.assertEqual("rw", self.shown(attachment_id))
        self.let_in("compute-2", token=BOB)
        self.assertEqual({"compute-1": "rw", "compute-2": "ro"}, self.modes())
        self.shut("compute-1")
        self.assertEqual("ro", self.shown(attachment_id))
        self.open("compute-1")
        self.assertEqual("ro", self.modes()["compute-1"])


class LimitTest(Case):
    """The type allows two."""

    specs = {"max_attachments": "2"}

    def test_legacy_connect_without_reservation_counts_against_no_other_user(self):
        self.act(self.volume, "os-reserve", token=BOB)
        self.open("compute-1")
        sent = {"connector": connector("compute-3")}
        fault = self.act(self.volume, "os-initialize_connection", sent, status=400).fault
        self.assertIn("has 2 attachments, and may have 2", fault)
        self.open("compute-2", token=BOB)
        self.attach(SERVERS[1], token=BOB)
        self.attach(SERVERS[0])
        self.act(self.volume, "os-reserve", status=400)
