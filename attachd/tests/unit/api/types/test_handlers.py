# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of volume types."""

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.types import handlers
from attachd.db.types import default_types, qos_specs, type_store
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.fixtures.conf_fixture import override

PUBLIC = "os-volume-type-access:is_public"


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.admin = api_context.make_context(*api_context.ADMIN)

    def create(self, **fields):
        return handlers.create(self.admin, {"volume_type": {"name": "gold", **fields}})[
            "volume_type"
        ]

    def update(self, type_id, **fields):
        return handlers.update(self.admin, type_id, {"volume_type": fields})["volume_type"]


class CreateTest(Case):
    def test_create_shows_given_fields(self):
        shown = self.create(description="d", extra_specs={"k": "v"}, **{PUBLIC: "False"})
        self.assertEqual(
            ("gold", "d", {"k": "v"}, False, False),
            tuple(shown[k] for k in ("name", "description", "extra_specs", "is_public", PUBLIC)),
        )

    def test_create_with_name_only_succeeds(self):
        shown = self.create(extra_specs=None)
        self.assertEqual(({}, True), (shown["extra_specs"], shown["is_public"]))

    def test_create_with_duplicate_name_is_refused(self):
        self.create()
        with self.assertRaises(exception.TypeExists):
            self.create()


class ShowTest(Case):
    def test_show_returns_type(self):
        volume_type = self.create()
        shown = handlers.show(self.admin, volume_type["id"])["volume_type"]
        self.assertEqual({**volume_type, "qos_specs_id": None}, shown)

    def test_show_default_returns_default_type(self):
        with self.assertRaisesRegex(exception.NotFound, "Default volume type"):
            handlers.show(self.admin, "default")
        volume_type = self.create()
        override(self, "default_volume_type", "gold")
        self.assertEqual(
            volume_type["id"], handlers.show(self.admin, "default")["volume_type"]["id"]
        )

    def test_show_private_type_for_member_is_not_found(self):
        volume_type = self.create(**{PUBLIC: False})
        with self.assertRaises(exception.VolumeTypeNotFound):
            handlers.show(api_context.make_context(), volume_type["id"])


class UpdateTest(Case):
    def test_update_changes_only_given_fields(self):
        volume_type = self.create(description="old")
        shown = self.update(volume_type["id"], name="silver", description=None)
        self.assertEqual(("silver", "old"), (shown["name"], shown["description"]))

    def test_update_takes_both_names_of_is_public(self):
        volume_type = self.create()
        self.assertIs(False, self.update(volume_type["id"], is_public="false")["is_public"])
        self.assertIs(True, self.update(volume_type["id"], **{PUBLIC: True})["is_public"])

    def test_update_answer_has_one_name_of_is_public(self):
        self.assertNotIn(PUBLIC, self.update(self.create()["id"], name="n"))

    def test_update_without_change_is_refused(self):
        volume_type = self.create()
        for fields in ({}, {"name": None}, {"name": None, "description": None}):
            with self.assertRaisesRegex(exception.BadRequest, "Specify"):
                self.update(volume_type["id"], **fields)

    def test_update_with_duplicate_name_is_refused(self):
        self.create()
        other = self.create(name="silver")
        with self.assertRaises(exception.TypeExists):
            self.update(other["id"], name="gold")

    def test_update_of_unknown_type_is_not_found(self):
        with self.assertRaises(exception.VolumeTypeNotFound):
            self.update(api_context.new_id(), name="n")


class DeleteTest(Case):
    def test_delete_removes_type(self):
        volume_type = self.create()
        handlers.delete(self.admin, volume_type["id"])
        with self.assertRaises(exception.VolumeTypeNotFound):
            handlers.delete(self.admin, volume_type["id"])

    def test_delete_with_volumes_is_refused(self):
        volume_type = self.create()
        db_rows.add_volume(volume_type_id=volume_type["id"])
        with self.assertRaises(exception.TypeInUse):
            handlers.delete(self.admin, volume_type["id"])

    def test_delete_configured_default_is_refused(self):
        volume_type = self.create()
        override(self, "default_volume_type", "gold")
        with self.assertRaises(exception.TypeIsDefault):
            handlers.delete(self.admin, volume_type["id"])

    def test_delete_default_of_project_is_refused(self):
        volume_type = self.create()
        default_types.set_default("p", volume_type["id"])
        with self.assertRaises(exception.TypeIsDefault):
            handlers.delete(self.admin, volume_type["id"])


class ListTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.add_type("gold", extra_specs={"multiattach": "<is> True", "inner": "x"})
        api_context.add_type("silver")
        self.qos = qos_specs.create("fast", "both", {})
        self.hidden = api_context.add_type(
            "hidden", is_public=False, description="deep", qos_specs_id=self.qos["id"]
        )
        self.ctx = api_context.make_context()

    def index(self, version=mv.LATEST, **query):
        return handlers.index(self.ctx, query, version, api_context.make_links())

    def names(self, *arguments, **query):
        shown = self.index(*arguments, **query)["volume_types"]
        return {item["name"] for item in shown}

    def test_list_for_member_shows_public_types_only(self):
        for query in ({}, {"is_public": "None"}, {"is_public": "False"}):
            self.assertEqual({"gold", "silver"}, self.names(**query))

    def test_list_for_member_shows_accessible_private_types(self):
        type_store.add_access(self.hidden["id"], db_rows.PROJECT)
        self.assertEqual({"gold", "silver", "hidden"}, self.names())
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.assertEqual({"gold", "silver", "hidden"}, self.names(is_public="True"))
        self.ctx = api_context.make_context(*api_context.ADMIN, project=api_context.OTHER_PROJECT)
        self.assertEqual({"gold", "silver"}, self.names())

    def test_list_for_admin_takes_any_filter(self):
        self.ctx = api_context.make_context(*api_context.ADMIN)
        for query in (
            {"id": self.hidden["id"]},
            {"name": "hidden"},
            {"description": "deep"},
            {"qos_specs_id": self.qos["id"]},
        ):
            self.assertEqual({"hidden"}, self.names(is_public="None", **query), query)

    def test_list_for_admin_filters_by_visibility(self):
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.assertEqual({"gold", "silver"}, self.names())
        self.assertEqual({"hidden"}, self.names(is_public="False"))
        self.assertEqual({"gold", "silver", "hidden"}, self.names(is_public="None"))
        self.assertEqual({"hidden"}, self.names(is_public="none", name="hidden"))

    def test_list_filters_by_extra_specs_since_3_52(self):
        query = {"extra_specs": "{'multiattach': '<is> True'}"}
        self.assertEqual({"gold"}, self.names(**query))
        self.assertEqual({"gold", "silver"}, self.names(mv.Version(3, 51), **query))
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.assertEqual({"gold"}, self.names(mv.Version(3, 51), **query))

    def test_list_filter_by_hidden_spec_matches_nothing(self):
        query = {"extra_specs": "{'inner': 'x'}"}
        self.assertEqual(set(), self.names(**query))
        self.ctx = api_context.make_context(*api_context.ADMIN)
        self.assertEqual({"gold"}, self.names(**query))

    def test_list_with_unknown_filter_is_refused_since_3_52(self):
        self.assertEqual({"gold", "silver"}, self.names(mv.Version(3, 51), colour="red"))
        with self.assertRaisesRegex(exception.BadRequest, "colour"):
            self.names(colour="red")

    def test_list_is_paged(self):
        first = self.index(limit="1", sort="name:asc")
        (link,) = first["volume_types_links"]
        self.assertIn("/types?limit=1&sort=name%3Aasc&marker=", link["href"])
        marker = first["volume_types"][0]["id"]
        self.assertEqual({"silver"}, self.names(limit="1", sort="name:asc", marker=marker))
        self.assertNotIn("volume_types_links", self.index())
