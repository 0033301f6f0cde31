# SPDX-License-Identifier: Apache-2.0
"""What a driver is told of rows, and what it is told again."""

import unittest

from attachd import exception
from attachd.db import qos_specs, types
from attachd.manager import attach, driver_args
from attachd.states import AttachmentState
from attachd.tests import backends, databases, keys, rows
from attachd.tests.rows import CONNECTOR


class LiveTest(unittest.TestCase):
    """Who must not notice what is done to another one."""

    def test_only_who_reaches_the_volume_and_should(self):
        held = [
            {"id": state.value, "state": state.value, "connector": CONNECTOR, "mode": None,
             "secret": None}
            for state in AttachmentState
        ]  # fmt: skip
        found = [each.attachment_id for each in driver_args.live(held)]
        self.assertEqual(["connecting", "connected", "attached", "withdrawing"], found)

    def test_nobody_who_never_was_connected(self):
        self.assertEqual([], driver_args.live([{"state": "attached", "connector": None}]))


class SecretTest(unittest.TestCase):
    """Who is told a secret."""

    def setUp(self):
        super().setUp()
        databases.use(self)
        self.file = keys.use(self)
        self.row = rows.attachment(rows.add_attachment(rows.add_volume()["id"], "attached")["id"])

    def test_only_who_lets_the_host_in(self):
        self.assertEqual("5" * 32, driver_args.export_to_grant(self.row).secret)
        self.assertEqual("", driver_args.export(self.row).secret)
        self.assertEqual([""], [each.secret for each in driver_args.live([self.row])])

    def test_who_has_none_yet_gets_none(self):
        self.assertEqual("", driver_args.export_to_grant({**self.row, "secret": None}).secret)

    def test_a_connection_is_opened_for_who_needs_it(self):
        self.assertIsNone(driver_args.connection(self.row))
        info = {"driver_volume_type": "iscsi", "data": {"auth_password": "p"}}
        rows.change_attachment(self.row["id"], connection_info=info)
        self.assertEqual(info, driver_args.connection(rows.attachment(self.row["id"])))

    def test_a_lost_key_is_in_the_way_of_nothing_else(self):
        keys.lose(self.file)
        with self.assertRaises(exception.SecretUnreadable):
            driver_args.export_to_grant(self.row)
        self.assertEqual(self.row["id"], driver_args.export(self.row).attachment_id)


class QosTest(unittest.TestCase):
    """What a host is told to limit a volume to."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        qos = qos_specs.create("gold", "front-end", {"total_iops_sec_per_gb": "10", "own": "x"})
        self.qos = qos["id"]
        self.kind = types.create({"name": "fast", "qos_specs_id": self.qos})["id"]

    def told(self):
        volume = rows.add_volume(volume_type_id=self.kind, size_gib=20)["id"]
        attachment = rows.add_attachment(volume)["id"]
        answer = attach.attach(self.backend, attachment, volume, CONNECTOR)
        stored = rows.attachment(attachment)["connection_info"]
        self.assertEqual(answer["connection_info"], stored)
        return stored["data"].get("qos_specs", "nothing")

    def test_what_is_meant_for_the_front_end_is_told(self):
        for consumer in ("front-end", "both"):
            qos_specs.update(self.qos, consumer, {})
            self.assertEqual({"total_iops_sec": 200, "own": "x"}, self.told())

    def test_what_is_meant_for_the_back_end_is_not(self):
        qos_specs.update(self.qos, "back-end", {})
        self.assertEqual("nothing", self.told())

    def test_a_type_may_have_none_and_a_volume_no_type(self):
        qos_specs.disassociate_all(self.qos)
        self.assertEqual("nothing", self.told())
        self.kind = None
        self.assertEqual("nothing", self.told())

    def test_an_empty_set_is_told(self):
        qos_specs.delete_keys(self.qos, ["total_iops_sec_per_gb", "own"])
        self.assertEqual({}, self.told())


class GrantAgainTest(unittest.TestCase):
    """A backend forgot its exports."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.driver = self.backend.driver
        self.volume_id = rows.add_volume(provider={"lun": 7}, multiattach=True)["id"]

    def test_a_host_that_should_reach_its_volume_is_let_in_under_the_same_terms(self):
        mine = rows.add_attachment(self.volume_id)["id"]
        attach.attach(self.backend, mine, self.volume_id, {**CONNECTOR, "mode": "ro"})
        before = rows.attachment(mine)
        self.driver.restart()
        driver_args.grant_again(self.backend, before)
        first, second = self.driver.handed
        self.assertEqual(first, second)
        self.assertEqual(before, rows.attachment(mine))

    def test_only_a_finished_connect_is_repeated(self):
        for state in AttachmentState:
            mine = rows.add_attachment(self.volume_id, state.value)
            driver_args.grant_again(self.backend, {**mine, "state": "connected"})
        granted = [rows.attachment(each)["state"] for each in self.driver.granted()]
        self.assertEqual(["attached", "connected", "withdrawing"], sorted(granted))

    def test_completed_without_a_connector_there_is_nothing_to_grant(self):
        mine = rows.add_attachment(self.volume_id, "attached", connector=None)
        driver_args.grant_again(self.backend, mine)
        self.assertEqual([], self.driver.handed)
