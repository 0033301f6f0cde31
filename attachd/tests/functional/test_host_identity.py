# SPDX-License-Identifier: Apache-2.0
"""Tests of hosts under other names and with initiators of others, through the API."""

import functools
import threading
from urllib import parse

import sqlalchemy as sa

from attachd.db import host_fences, host_identities, models
from attachd.db.engine import session
from attachd.tests.fixtures import conf_fixture, db_rows
from attachd.tests.functional.fencing_case import VERSION, FencingCase
from attachd.tests.functional.race_case import DatabaseRaceCase, outcomes

IQN = "iqn.2026-01.org.example:compute-1"
SPELLINGS = ("compute-1", "COMPUTE-1", "compute-1.example.org", "another-name")


def connector(host, initiator=IQN, **keys):
    return {"host": host, "initiator": initiator, **keys}


class Case(FencingCase):
    def volume(self, **columns):
        return db_rows.add_volume(**columns)["id"]

    def attach(self, host, status=200, volume=None, **keys):
        body = {"volume_uuid": volume or self.volume(), "connector": connector(host, **keys)}
        answer = self.expect(status, "POST", "/attachments", {"attachment": body})
        return answer.body["attachment"]["id"] if status == 200 else answer.fault

    def put(self, host, status=200, **keys):
        reserved = self.create_attachment(self.volume())
        body = {"attachment": {"connector": connector(host, **keys)}}
        return self.expect(status, "PUT", f"/attachments/{reserved}", body)

    def initialize(self, host, status=200, **keys):
        body = {"connector": connector(host, **keys)}
        return self.act(self.volume(), "os-initialize_connection", body, status)


class ClosedHostTest(Case):
    def test_fenced_host_is_refused_under_each_name_and_by_each_call(self):
        self.attach("compute-1")
        self.fence("compute-1")
        for host in SPELLINGS:
            self.assertIn("Host compute-1 is fenced since", self.attach(host, 409))
            self.put(host, 409)
            self.initialize(host, 409)
        self.assertEqual(set(), self.driver.granted())
        self.attach("another-name", initiator="iqn.2026-01.org.example:other")

    def test_drained_host_is_refused_under_each_name(self):
        self.attach("compute-1")
        self.own("POST", "/hosts/compute-1/drain", {"drain": {"reason": "repair"}})
        for host in SPELLINGS:
            self.assertIn("Host compute-1 is drained since", self.attach(host, 409))

    def test_fence_ends_access_under_other_spellings_and_another_lifts_it(self):
        made = {self.attach("compute-1"), self.attach("COMPUTE-1.example.org")}
        made.add(self.attach("compute-1", initiator=None, nqn="nqn.2026-01.org.example:c"))
        fence = self.fence("Compute-1")
        self.assertEqual(made, {item["attachment_id"] for item in fence["attachments"]})
        self.assertEqual(set(), self.driver.granted())
        self.assertEqual("compute-1", fence["host"]["host"])
        self.own("POST", "/hosts/compute-1.example.org/unfence", {"unfence": None})
        self.attach("compute-1")

    def test_hosts_of_different_domains_are_two(self):
        one = self.attach("web.a.example", initiator="iqn.2026-01.org.example:a")
        other = self.attach("web.b.example", initiator="iqn.2026-01.org.example:b")
        self.assertIn("Several hosts", self.own("GET", "/hosts/web", status=409))
        fence = self.fence("web.a.example")
        self.assertEqual([one], [item["attachment_id"] for item in fence["attachments"]])
        self.assertEqual({other}, self.driver.granted())
        self.attach("web.b.example", initiator="iqn.2026-01.org.example:b")
        self.attach("web.a.example", 409, initiator="iqn.2026-01.org.example:new")

    def test_host_without_initiators_is_known_by_its_name(self):
        made = self.attach("nfs-1", initiator=None)
        fence = self.fence("NFS-1.example.org")
        self.assertEqual([made], [item["attachment_id"] for item in fence["attachments"]])
        self.attach("nfs-1.example.org", 409, initiator=None)
        self.attach("nfs-2.example.org", initiator=None)

    def test_fenced_host_is_known_beside_any_number_of_machine_ids(self):
        nqn = {"initiator": None, "nqn": "nqn.2014-08.org.nvmexpress:uuid:c1"}
        self.attach("nvme-1", **nqn)
        self.fence("nvme-1")
        for number, status in ((2, 409), (3, 400), (64, 400)):
            ids = [f"machine-{item:02}" for item in range(number)]
            self.attach("other", status, **nqn, **{"system uuid": ids})
        self.assertEqual(set(), self.driver.granted())

    def test_fenced_machine_without_initiators_is_known_by_its_id(self):
        machine = {"initiator": None, "system uuid": "4C4C4544-0000-1000-8000-000000000001"}
        self.attach("rbd-1", **machine)
        self.fence("rbd-1")
        self.attach("renamed", 409, **machine)


class OwnerTest(Case):
    def test_initiator_of_another_host_is_refused_with_its_name(self):
        self.attach("compute-1")
        for said in (
            self.attach("compute-2", 409),
            self.put("compute-2", 409).fault,
            self.initialize("compute-2", 409).fault,
        ):
            self.assertIn(f"its initiator {IQN} belongs to host compute-1", said)
        self.assertEqual(1, len(self.driver.granted()))

    def test_dry_run_names_the_owner_of_an_initiator(self):
        self.attach("compute-1")
        for host, possible in (("compute-2", False), ("COMPUTE-1", True)):
            body = {"volume_uuid": self.volume(), "connector": connector(host)}
            path = "/attachments?dry_run=true"
            answer = self.own("POST", path, {"attachment": body})["dry_run"]
            self.assertEqual(possible, answer["possible"])
            self.assertIn("" if possible else "belongs to host compute-1", f"{answer['reasons']}")

    def test_renamed_host_keeps_its_initiator_after_its_last_attachment(self):
        made = self.attach("old-name")
        self.expect(200, "DELETE", f"/attachments/{made}")
        self.attach("new-name")
        self.attach("old-name", 409)

    def test_fibre_channel_port_in_any_form_is_one(self):
        self.attach("compute-1", initiator=None, wwpns=["50014380186B3F65"])
        said = self.attach("compute-2", 409, initiator=None, wwpns=["50:01:43:80:18:6b:3f:65"])
        self.assertIn("belongs to host compute-1", said)

    def test_machine_id_that_two_hosts_have_refuses_none(self):
        uuid = {"system uuid": "4c4c4544-0000-1000-8000-000000000002"}
        self.attach("compute-1", **uuid)
        self.attach("compute-2", initiator="iqn.2026-01.org.example:2", **uuid)
        self.fence("compute-1")
        self.attach("compute-2", initiator="iqn.2026-01.org.example:2", **uuid)

    def test_administrator_moves_initiator_to_another_host(self):
        self.attach("compute-1")
        body = {"claim": {"initiators": [IQN.upper()]}}
        moved = self.own("POST", "/hosts/compute-2/claim", body)["claim"]
        self.assertEqual({"host": "compute-2", "initiators": [IQN]}, moved)
        self.attach("compute-2")
        self.assertIn("belongs to host compute-2", self.attach("compute-1", 409))
        self.fence("compute-2")
        said = self.own("POST", "/hosts/compute-1/claim", body, 409)
        self.assertIn("Host compute-2 is fenced", said)
        for wrong in ([], ["compute-1"], "x", [IQN] * 17):
            bad = {"claim": {"initiators": wrong}}
            self.own("POST", "/hosts/compute-1/claim", bad, 400)
        path = "/hosts/compute-2/claim"
        self.assertEqual(403, self.api.request("POST", path, body, version=VERSION).status)

    def test_claim_of_user_gives_way_to_service(self):
        self.attach("claimed-by-user")
        row = {**db_rows.add_attachment(self.volume(), "connecting"), "agent": None}
        row |= {"host": "compute-1", "connector": connector("compute-1"), "by_service": True}
        host_identities.admit(row)
        self.assertIn("belongs to host compute-1", self.attach("claimed-by-user", 409))

    def test_of_hosts_that_claim_one_initiator_at_once_one_succeeds(self):
        answers = []

        def attach(host, volume):
            body = {"attachment": {"volume_uuid": volume, "connector": connector(host)}}
            answers.append(self.api.request("POST", "/attachments", body).status)

        threads = [
            threading.Thread(target=attach, args=(f"racer-{number}", self.volume()))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([200, 409, 409, 409], sorted(answers))


class SameHostTest(Case):
    def test_connector_under_another_spelling_gets_the_same_answer(self):
        reserved = self.create_attachment(self.volume())
        for host in ("compute-1", "compute-1.example.org"):
            body = {"attachment": {"connector": connector(host)}}
            self.expect(200, "PUT", f"/attachments/{reserved}", body)
        self.assertEqual(1, self.driver.methods.count("grant"))

    def test_older_calls_close_connection_under_another_spelling(self):
        volume = self.volume()
        first = {"connector": connector("compute-1")}
        self.act(volume, "os-initialize_connection", first, 200)
        other = {"connector": connector("compute-1.example.org")}
        self.act(volume, "os-initialize_connection", other, 200)
        self.assertEqual(1, len(db_rows.list_attachments()))
        self.act(volume, "os-terminate_connection", other)
        self.assertEqual([], db_rows.list_attachments())

    def test_limit_of_host_counts_each_spelling(self):
        conf_fixture.override(self, "max_attachments_per_host", 2, group="manager")
        self.attach("compute-1")
        self.attach("Compute-1")
        self.assertIn("max_attachments_per_host", self.attach("compute-1.example.org", 400))


class NameTest(Case):
    def test_name_that_no_url_can_carry_is_refused_by_each_call(self):
        volume = self.volume()
        for host in ("rack1/node", "a?b", "a#b", "a%2Fb", "a\\b", " a", "a ", ".", "..", "a\nb"):
            self.assertIn("connector.host", self.attach(host, 400))
            self.assertIn("connector.host", self.put(host, 400).fault)
            self.assertIn("connector.host", self.initialize(host, 400).fault)
            named = {"host_name": host, "mountpoint": "/dev/vdb"}
            self.assertIn("host_name", self.act(volume, "os-attach", named, 400).fault)
            body = {"attachment": {"volume_uuid": volume, "host": host}}
            self.assertIn("attachment.host", self.own("POST", "/attachments", body, 400))
        self.assertEqual(set(), self.driver.granted())

    def test_unusual_names_can_be_fenced(self):
        for number, host in enumerate(("a b", "n.json", "b@c+d", "knöten")):
            made = self.attach(host, initiator=f"iqn.2026-01.org.example:{number}")
            path = f"/hosts/{parse.quote(host)}/fence"
            fence = self.own("POST", path, {"fence": {"reason": "test"}})["fence"]
            self.assertEqual([made], [item["attachment_id"] for item in fence["attachments"]])


class ClaimRaceOnSqlite(DatabaseRaceCase):
    """Hosts that are admitted at the same moment, with one initiator."""

    def row(self, name):
        connector = {"host": name, "initiator": IQN, "wwpns": ["50014380186b3f65"]}
        volume = db_rows.add_volume()["id"]
        row = db_rows.add_attachment(volume, "connecting", host=name, connector=connector)
        return {**row, "agent": None, "by_service": None}

    def test_one_of_several_hosts_gets_the_initiator(self):
        rows = [self.row(f"host-{number}") for number in range(6)]
        seen = outcomes(*(functools.partial(host_identities.admit, row) for row in rows))
        self.assertEqual({"NoneType": 1, "InitiatorTaken": 5}, seen)

    def test_connects_of_one_host_are_all_admitted(self):
        rows = [self.row(name) for name in ("n", "N", "n.example.org") * 2]
        seen = outcomes(*(functools.partial(host_identities.admit, row) for row in rows))
        self.assertEqual({"NoneType": 6}, seen)

    def test_owner_that_returns_and_new_host_never_both_get_the_initiator(self):
        for number in range(8):
            owner = self.row(f"owner-{number}")
            host_identities.admit(owner)
            db_rows.change_attachment(owner["id"], state="connect_failed")

            def return_(owner=owner):
                db_rows.change_attachment(owner["id"], state="connecting")
                host_identities.admit(owner)

            new = self.row(f"new-{number}")
            seen = outcomes(return_, functools.partial(host_identities.admit, new))
            self.assertLessEqual(seen["NoneType"], 1)
            for row in (owner, new):
                db_rows.remove_attachment(row["id"])

    def test_fence_during_connect_under_another_spelling_refuses_or_lists_it(self):
        for number in range(8):
            host_identities.admit(self.row(f"n{number}"))
            row = self.row(f"N{number}.example.org")
            seen = outcomes(
                functools.partial(host_identities.admit, row),
                functools.partial(host_fences.fence, f"n{number}", "race", None),
            )
            listed = [item["id"] for item in host_fences.list_to_fence([f"n{number}"])]
            self.assertTrue(seen["HostFenced"] or row["id"] in listed)
            for item in db_rows.list_attachments():
                db_rows.remove_attachment(item["id"])
            with session.writer() as connection:
                connection.execute(sa.delete(models.host_identities))


class ClaimRaceOnMariadb(ClaimRaceOnSqlite):
    """The same with locks of rows."""

    kind = "mariadb"


class ClaimRaceOnPostgresql(ClaimRaceOnSqlite):
    """The same with rows in several versions."""

    kind = "postgresql"
