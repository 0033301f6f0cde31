# SPDX-License-Identifier: Apache-2.0
"""Rows as arguments of drivers."""

import unittest

from attachd import exception
from attachd.db.types import qos_specs
from attachd.db.types import store as types
from attachd.manager import attach, driver_args
from attachd.states import AttachmentState
from attachd.tests.fixtures import backends, databases, db_rows, key_files
from attachd.tests.fixtures.db_rows import CONNECTOR


class LiveExportsTest(unittest.TestCase):
    """Exports that a call for another one must not disturb."""

    def test_live_exports_lists_only_attachments_with_access(self):
        held = [
            {"id": state.value, "state": state.value, "connector": CONNECTOR, "mode": None,
             "secret": None}
            for state in AttachmentState
        ]  # fmt: skip
        found = [each.attachment_id for each in driver_args.live_exports(held)]
        self.assertEqual(["connecting", "connected", "attached", "withdrawing"], found)

    def test_live_exports_skips_rows_without_connector(self):
        self.assertEqual([], driver_args.live_exports([{"state": "attached", "connector": None}]))


class SecretTest(unittest.TestCase):
    """Exports and connections with secrets."""

    def setUp(self):
        super().setUp()
        databases.use(self)
        self.file = key_files.use(self)
        self.row = db_rows.get_attachment(
            db_rows.add_attachment(db_rows.add_volume()["id"], "attached")["id"]
        )

    def test_export_has_secret_only_for_grant(self):
        self.assertEqual("5" * 32, driver_args.export_with_secret(self.row).secret)
        self.assertEqual("", driver_args.export(self.row).secret)
        self.assertEqual([""], [each.secret for each in driver_args.live_exports([self.row])])

    def test_export_with_secret_of_row_without_secret_is_empty(self):
        self.assertEqual("", driver_args.export_with_secret({**self.row, "secret": None}).secret)

    def test_connection_info_is_decrypted(self):
        self.assertIsNone(driver_args.connection_info(self.row))
        info = {"driver_volume_type": "iscsi", "data": {"auth_password": "p"}}
        db_rows.change_attachment(self.row["id"], connection_info=info)
        self.assertEqual(info, driver_args.connection_info(db_rows.get_attachment(self.row["id"])))

    def test_export_with_lost_key_works_without_secret(self):
        key_files.replace_all_keys(self.file)
        with self.assertRaises(exception.SecretUnreadable):
            driver_args.export_with_secret(self.row)
        self.assertEqual(self.row["id"], driver_args.export(self.row).attachment_id)


class QosTest(unittest.TestCase):
    """QoS specs of connections."""

    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        qos = qos_specs.create("gold", "front-end", {"total_iops_sec_per_gb": "10", "own": "x"})
        self.qos = qos["id"]
        self.kind = types.create({"name": "fast", "qos_specs_id": self.qos})["id"]

    def qos_specs(self):
        volume = db_rows.add_volume(volume_type_id=self.kind, size_gib=20)["id"]
        attachment = db_rows.add_attachment(volume)["id"]
        answer = attach.attach(self.backend, attachment, volume, CONNECTOR)
        stored = db_rows.get_attachment(attachment)["connection_info"]
        self.assertEqual(answer["connection_info"], stored)
        return stored["data"].get("qos_specs", "nothing")

    def test_with_qos_adds_front_end_specs(self):
        for consumer in ("front-end", "both"):
            qos_specs.update(self.qos, consumer, {})
            self.assertEqual({"total_iops_sec": 200, "own": "x"}, self.qos_specs())

    def test_with_qos_skips_back_end_specs(self):
        qos_specs.update(self.qos, "back-end", {})
        self.assertEqual("nothing", self.qos_specs())

    def test_with_qos_without_specs_or_type_adds_none(self):
        qos_specs.disassociate_all(self.qos)
        self.assertEqual("nothing", self.qos_specs())
        self.kind = None
        self.assertEqual("nothing", self.qos_specs())

    def test_with_qos_with_empty_specs_adds_empty_set(self):
        qos_specs.delete_keys(self.qos, ["total_iops_sec_per_gb", "own"])
        self.assertEqual({}, self.qos_specs())


class ScaleQosTest(unittest.TestCase):
    def test_scale_qos_without_per_gib_keys_changes_nothing(self):
        specs = {"total_iops_sec": "500", "read_bytes_sec_max": "9", "own": "x", "empty": None}
        self.assertEqual(specs, driver_args.scale_qos(specs, 20))

    def test_scale_qos_per_gib_grows_with_size(self):
        for who in ("read", "write", "total"):
            for what in ("iops", "bytes"):
                found = driver_args.scale_qos({f"{who}_{what}_sec_per_gb": "10"}, 20)
                self.assertEqual({f"{who}_{what}_sec": 200}, found)

    def test_scale_qos_per_gib_replaces_fixed_limit(self):
        specs = {"total_iops_sec": "7", "total_iops_sec_per_gb": "10", "own": "x"}
        self.assertEqual({"total_iops_sec": 200, "own": "x"}, driver_args.scale_qos(specs, 20))

    def test_scale_qos_applies_minimum_and_maximum(self):
        specs = {
            "total_iops_sec_per_gb": "10",
            "total_iops_sec_per_gb_min": "100",
            "total_iops_sec_max": "1000",
        }
        for size, expected in ((1, 100), (10, 100), (20, 200), (100, 1000), (500, 1000)):
            self.assertEqual(
                {"total_iops_sec": expected}, driver_args.scale_qos(specs, size), size
            )

    def test_scale_qos_passes_invalid_numbers_on(self):
        specs = {"total_iops_sec_per_gb": "many", "read_iops_sec_per_gb": None}
        self.assertEqual(specs, driver_args.scale_qos(specs, 20))

    def test_scale_qos_does_not_change_input(self):
        specs = {"total_iops_sec_per_gb": "10"}
        driver_args.scale_qos(specs, 20)
        self.assertEqual({"total_iops_sec_per_gb": "10"}, specs)
