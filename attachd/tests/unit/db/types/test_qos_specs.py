# SPDX-License-Identifier: Apache-2.0
"""QoS specs, and the volume types with them."""

from attachd import exception
from attachd.db.attachments import attachment_rows
from attachd.db.attachments.statements import LOCK_VOLUME_TO_CONNECT
from attachd.db.engine import session
from attachd.db.engine.paging import Page
from attachd.db.types import qos_specs, type_store
from attachd.tests.fixtures import databases, db_rows


class Case(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.row = qos_specs.create("gold", "both", {"a": "1"})
        self.gold = self.row["id"]


class RowsTest(Case):
    def test_get_returns_row_by_id(self):
        self.assertEqual(self.row, qos_specs.get(self.gold))
        self.assertRaises(exception.QosSpecsNotFound, qos_specs.get, "gold")

    def test_create_with_used_name_is_refused(self):
        self.assertRaises(exception.QosSpecsExist, qos_specs.create, "gold", "both", {})

    def test_page_filters_and_sorts(self):
        other = qos_specs.create("iron", "front-end", {})
        for filters, expected in (
            ({}, [other["id"], self.gold]),
            ({"name": "iron"}, [other["id"]]),
            ({"consumer": "both"}, [self.gold]),
            ({"id": self.gold}, [self.gold]),
        ):
            found = qos_specs.page(filters, Page(limit=9))
            self.assertEqual(expected, [row["id"] for row in found], filters)

    def test_update_and_delete_keys_change_specs(self):
        qos_specs.update(self.gold, None, {"b": "2"})
        self.assertEqual({"a": "1", "b": "2"}, qos_specs.get(self.gold)["specs"])
        qos_specs.update(self.gold, "back-end", {"b": "3"})
        row = qos_specs.get(self.gold)
        self.assertEqual(("back-end", {"a": "1", "b": "3"}), (row["consumer"], row["specs"]))
        qos_specs.delete_keys(self.gold, ["a"])
        self.assertEqual({"b": "3"}, qos_specs.get(self.gold)["specs"])

    def test_delete_keys_removes_all_or_none(self):
        with self.assertRaisesRegex(exception.NotFound, "key z"):
            qos_specs.delete_keys(self.gold, ["a", "z"])
        self.assertEqual({"a": "1"}, qos_specs.get(self.gold)["specs"])

    def test_calls_on_deleted_specs_raise_not_found(self):
        for act in (
            lambda: qos_specs.update("gone", None, {}),
            lambda: qos_specs.delete_keys("gone", ["a"]),
            lambda: qos_specs.delete("gone"),
            lambda: qos_specs.delete_and_disassociate("gone"),
        ):
            self.assertRaises(exception.QosSpecsNotFound, act)


class TypesTest(Case):
    def setUp(self):
        super().setUp()
        self.slow = type_store.create({"name": "slow"})["id"]
        self.fast = type_store.create({"name": "fast"})["id"]

    def names(self):
        return [row["name"] for row in qos_specs.list_types(self.gold)]

    def test_associate_and_disassociate_change_type(self):
        for kind in (self.slow, self.fast, self.fast):
            qos_specs.associate(self.gold, kind)
        self.assertEqual(["fast", "slow"], self.names())
        self.assertEqual(self.gold, type_store.get(self.fast)["qos_specs_id"])
        qos_specs.disassociate(self.gold, self.slow)
        self.assertEqual(["fast"], self.names())
        qos_specs.disassociate_all(self.gold)
        self.assertEqual([], self.names())

    def test_associate_type_with_other_specs_is_refused(self):
        other = qos_specs.create("iron", "both", {})["id"]
        qos_specs.associate(self.gold, self.fast)
        with self.assertRaisesRegex(exception.InvalidVolumeType, self.gold):
            qos_specs.associate(other, self.fast)
        qos_specs.disassociate(other, self.fast)
        self.assertEqual(["fast"], self.names())

    def test_associate_deleted_specs_or_type_raises_not_found(self):
        with self.assertRaises(exception.VolumeTypeNotFound):
            qos_specs.associate(self.gold, "gone")
        with self.assertRaises(exception.QosSpecsNotFound):
            qos_specs.associate("gone", self.fast)

    def test_delete_of_associated_specs_needs_force(self):
        qos_specs.associate(self.gold, self.fast)
        self.assertRaises(exception.QosSpecsInUse, qos_specs.delete, self.gold)
        qos_specs.delete_and_disassociate(self.gold)
        self.assertIsNone(type_store.get(self.fast)["qos_specs_id"])
        self.assertRaises(exception.QosSpecsNotFound, qos_specs.get, self.gold)

    def test_delete_of_unassociated_specs_succeeds(self):
        qos_specs.delete(self.gold)
        self.assertRaises(exception.QosSpecsNotFound, qos_specs.get, self.gold)


class ConnectTest(Case):
    """A volume that is locked for a connect has the limits for its hosts."""

    def setUp(self):
        super().setUp()
        fast = type_store.create({"name": "fast", "qos_specs_id": self.gold})["id"]
        self.volume = db_rows.add_volume(volume_type_id=fast)["id"]

    def front_end_specs(self, volume=None):
        with session.writer() as connection:
            found = attachment_rows.lock_volume(
                connection, volume or self.volume, LOCK_VOLUME_TO_CONNECT
            )
        return found["front_end_qos"]

    def test_connect_reads_front_end_specs(self):
        for consumer, expected in (
            ("front-end", {"a": "1"}),
            ("both", {"a": "1"}),
            ("back-end", None),
        ):
            qos_specs.update(self.gold, consumer, {})
            self.assertEqual(expected, self.front_end_specs(), consumer)

    def test_connect_without_type_or_specs_reads_none(self):
        slow = type_store.create({"name": "slow"})["id"]
        for kind in (slow, None):
            self.assertIsNone(self.front_end_specs(db_rows.add_volume(volume_type_id=kind)["id"]))

    def test_other_transitions_read_no_specs(self):
        with session.writer() as connection:
            found = attachment_rows.lock_volume(connection, self.volume)
        self.assertNotIn("front_end_qos", found)
