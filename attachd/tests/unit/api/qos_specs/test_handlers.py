# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of QoS specs."""

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.qos_specs import handlers
from attachd.db.types import qos_specs
from attachd.tests.fixtures import api_context


class Case(api_context.ApiContextCase):
    def create(self, name="gold", **specs):
        body = {"qos_specs": {"name": name, **specs}}
        return handlers.create(body, api_context.make_links())["qos_specs"]

    def show(self, one):
        return handlers.show(one["id"], api_context.make_links())["qos_specs"]


class SpecsTest(Case):
    def test_create_shows_given_specs(self):
        made = handlers.create(
            {"qos_specs": {"name": " gold ", "consumer": "both", "k": "v"}},
            api_context.make_links(),
        )
        shown = made["qos_specs"]
        self.assertEqual(
            {"id": shown["id"], "name": "gold", "consumer": "both", "specs": {"k": "v"}}, shown
        )
        self.assertEqual(made, handlers.show(shown["id"], api_context.make_links()))
        self.assertIn(f"/qos-specs/{shown['id']}", made["links"][0]["href"])

    def test_create_without_consumer_defaults_to_back_end(self):
        self.assertEqual("back-end", self.create()["consumer"])

    def test_create_leaves_out_null_keys(self):
        self.assertEqual({"b": "2"}, self.create(a=None, b="2")["specs"])

    def test_create_with_duplicate_name_is_refused(self):
        self.create()
        with self.assertRaises(exception.QosSpecsExist):
            self.create(name="gold ")

    def test_update_and_delete_keys(self):
        one = self.create(a="1")
        body = {"qos_specs": {"b": "2", "consumer": "front-end"}}
        self.assertEqual(body, handlers.update(one["id"], body))
        shown = self.show(one)
        self.assertEqual(({"a": "1", "b": "2"}, "front-end"), (shown["specs"], shown["consumer"]))
        handlers.delete_keys(one["id"], {"keys": ["a"]})
        self.assertEqual({"b": "2"}, self.show(one)["specs"])

    def test_delete_removes_specs(self):
        one = self.create()
        handlers.delete(one["id"], {})
        with self.assertRaises(exception.QosSpecsNotFound):
            self.show(one)

    def test_delete_with_invalid_force_is_refused(self):
        with self.assertRaisesRegex(exception.InvalidInput, "force"):
            handlers.delete(self.create()["id"], {"force": "perhaps"})


class ListTest(Case):
    def index(self, version=mv.LATEST, **query):
        return handlers.index(query, version, api_context.make_links())

    def test_list_is_paged(self):
        for name in "abc":
            self.create(name)
        first = self.index(sort="name:asc", limit="2")
        self.assertEqual(["a", "b"], [qos_spec["name"] for qos_spec in first["qos_specs"]])
        (link,) = first["qos_specs_links"]
        self.assertIn("/qos-specs?sort=name%3Aasc&limit=2&marker=", link["href"])
        self.assertNotIn("qos_specs_links", self.index())

    def test_list_applies_filters(self):
        self.create("a", consumer="both")
        self.create("b")
        for query in ({"name": "a"}, {"consumer": "both"}):
            self.assertEqual(["a"], [e["name"] for e in self.index(**query)["qos_specs"]])
        with self.assertRaisesRegex(exception.BadRequest, "colour"):
            self.index(colour="red")


class AssociationsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.one = qos_specs.create("gold", "front-end", {})["id"]
        self.type_id = api_context.add_type("fast")["id"]
        self.query = {"vol_type_id": self.type_id}

    def listed(self):
        return handlers.list_associations(self.one)["qos_associations"]

    def test_associate_and_disassociate_types(self):
        self.assertEqual([], self.listed())
        handlers.associate(self.one, self.query)
        expected = {"association_type": "volume_type", "name": "fast", "id": self.type_id}
        self.assertEqual([expected], self.listed())
        handlers.disassociate(self.one, self.query)
        self.assertEqual([], self.listed())
        handlers.associate(self.one, self.query)
        handlers.disassociate_all(self.one)
        self.assertEqual([], self.listed())

    def test_delete_of_associated_specs_needs_force(self):
        handlers.associate(self.one, self.query)
        with self.assertRaises(exception.QosSpecsInUse):
            handlers.delete(self.one, {})
        handlers.delete(self.one, {"force": "True"})

    def test_associate_with_back_end_consumer_logs_warning(self):
        other = qos_specs.create("iron", "back-end", {})["id"]
        with self.assertLogs("attachd.api.qos_specs.handlers", "WARNING") as logs:
            handlers.associate(other, self.query)
        self.assertIn("no backend limits anything", logs.output[0])

    def test_associate_without_type_is_refused(self):
        for act in (handlers.associate, handlers.disassociate):
            with self.assertRaisesRegex(exception.BadRequest, "Volume Type id"):
                act(self.one, {})
            with self.assertRaises(exception.VolumeTypeNotFound):
                act(self.one, {"vol_type_id": "gone"})

    def test_associate_of_unknown_specs_or_type_is_not_found(self):
        acts = (
            lambda: handlers.list_associations("gone"),
            lambda: handlers.associate("gone", self.query),
            lambda: handlers.disassociate("gone", self.query),
            lambda: handlers.disassociate_all("gone"),
        )
        for act in acts:
            self.assertRaises(exception.QosSpecsNotFound, act)
