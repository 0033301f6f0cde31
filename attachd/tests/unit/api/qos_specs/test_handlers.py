# SPDX-License-Identifier: Apache-2.0
"""QoS specs."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.qos_specs import handlers
from attachd.db.types import qos_specs
from attachd.tests import asking


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def create(self, name="gold", **specs):
        body = {"qos_specs": {"name": name, **specs}}
        return handlers.create(body, asking.links())["qos_specs"]

    def show(self, one):
        return handlers.show(one["id"], asking.links())["qos_specs"]


class SpecsTest(Case):
    def test_what_is_given_is_shown(self):
        made = handlers.create(
            {"qos_specs": {"name": " gold ", "consumer": "both", "k": "v"}}, asking.links()
        )
        shown = made["qos_specs"]
        self.assertEqual(
            {"id": shown["id"], "name": "gold", "consumer": "both", "specs": {"k": "v"}}, shown
        )
        self.assertEqual(made, handlers.show(shown["id"], asking.links()))
        self.assertIn(f"/qos-specs/{shown['id']}", made["links"][0]["href"])

    def test_who_does_not_say_who_sees_to_it_means_the_back_end(self):
        self.assertEqual("back-end", self.create()["consumer"])

    def test_keys_of_null_are_left_out(self):
        self.assertEqual({"b": "2"}, self.create(a=None, b="2")["specs"])

    def test_a_name_is_taken_once(self):
        self.create()
        with self.assertRaises(exception.QosSpecsExist):
            self.create(name="gold ")

    def test_keys_are_set_and_removed(self):
        one = self.create(a="1")
        body = {"qos_specs": {"b": "2", "consumer": "front-end"}}
        self.assertEqual(body, handlers.update(one["id"], body))
        shown = self.show(one)
        self.assertEqual(({"a": "1", "b": "2"}, "front-end"), (shown["specs"], shown["consumer"]))
        handlers.delete_keys(one["id"], {"keys": ["a"]})
        self.assertEqual({"b": "2"}, self.show(one)["specs"])

    def test_they_are_gone(self):
        one = self.create()
        handlers.delete(one["id"], {})
        with self.assertRaises(exception.QosSpecsNotFound):
            self.show(one)

    def test_nonsense_is_no_force(self):
        with self.assertRaisesRegex(exception.InvalidInput, "force"):
            handlers.delete(self.create()["id"], {"force": "perhaps"})


class ListTest(Case):
    def index(self, version=mv.LATEST, **query):
        return handlers.index(query, version, asking.links())

    def test_pages(self):
        for name in "abc":
            self.create(name)
        first = self.index(sort="name:asc", limit="2")
        self.assertEqual(["a", "b"], [each["name"] for each in first["qos_specs"]])
        (link,) = first["qos_specs_links"]
        self.assertIn("/qos-specs?sort=name%3Aasc&limit=2&marker=", link["href"])
        self.assertNotIn("qos_specs_links", self.index())

    def test_filters(self):
        self.create("a", consumer="both")
        self.create("b")
        for query in ({"name": "a"}, {"consumer": "both"}):
            self.assertEqual(["a"], [e["name"] for e in self.index(**query)["qos_specs"]])
        with self.assertRaisesRegex(exception.BadRequest, "colour"):
            self.index(colour="red")


class AssociationsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.one = qos_specs.create("gold", "front-end", {})["id"]
        self.kind = asking.add_type("fast")["id"]
        self.query = {"vol_type_id": self.kind}

    def listed(self):
        return handlers.list_associations(self.one)["qos_associations"]

    def test_types_get_and_lose_them(self):
        self.assertEqual([], self.listed())
        handlers.associate(self.one, self.query)
        expected = {"association_type": "volume_type", "name": "fast", "id": self.kind}
        self.assertEqual([expected], self.listed())
        handlers.disassociate(self.one, self.query)
        self.assertEqual([], self.listed())
        handlers.associate(self.one, self.query)
        handlers.disassociate_all(self.one)
        self.assertEqual([], self.listed())

    def test_what_types_have_stays_unless_forced(self):
        handlers.associate(self.one, self.query)
        with self.assertRaises(exception.QosSpecsInUse):
            handlers.delete(self.one, {})
        handlers.delete(self.one, {"force": "True"})

    def test_what_the_back_end_does_not_do_is_said(self):
        other = qos_specs.create("iron", "back-end", {})["id"]
        with self.assertLogs("attachd.api.qos_specs.handlers", "WARNING") as logs:
            handlers.associate(other, self.query)
        self.assertIn("no backend limits anything", logs.output[0])

    def test_a_type_is_needed(self):
        for act in (handlers.associate, handlers.disassociate):
            with self.assertRaisesRegex(exception.BadRequest, "Volume Type id"):
                act(self.one, {})
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.one, {"vol_type_id": "gone"})

    def test_what_is_gone_is_said_to_be(self):
        acts = (
            lambda: handlers.list_associations("gone"),
            lambda: handlers.associate("gone", self.query),
            lambda: handlers.disassociate("gone", self.query),
            lambda: handlers.disassociate_all("gone"),
        )
        for act in acts:
            self.assertRaises(exception.QosSpecsNotFound, act)
