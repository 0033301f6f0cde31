# SPDX-License-Identifier: Apache-2.0
"""Tests of the values of new volumes."""

import unittest

from attachd import exception
from attachd.api.volumes import create_params, schema
from attachd.tests.fixtures import api_context, db_rows
from attachd.tests.fixtures.conf_fixture import override


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("here@shelf")
        self.ctx = api_context.make_context()

    def new(self, *roles, **requested):
        ctx = api_context.make_context(*roles) if roles else self.ctx
        return create_params.build(ctx, {"size": 1, **requested})


class ValuesTest(Case):
    def test_build_of_plain_volume(self):
        self.assertEqual(
            {
                "name": "n",
                "description": None,
                "project_id": self.ctx.project_id,
                "user_id": "u",
                "size_gib": 3,
                "multiattach": False,
                "bootable": False,
                "source_volid": None,
                "snapshot_id": None,
                "volume_type_id": None,
                "volume_type_name": None,
                "type_specs": {},
                "metadata": {},
                "host": "here@shelf#shelf",
                "availability_zone": "nova",
            },
            self.new(size="3", name=" n ", description=None),
        )

    def test_name_wins_over_display_name(self):
        requested = {"display_name": "old", "name": "new", "display_description": "text"}
        self.assertEqual(
            {"name": "new", "description": "text"}, create_params.name_and_description(requested)
        )
        self.assertEqual({}, create_params.name_and_description({}))

    def test_null_fields_are_ignored(self):
        nothing = dict.fromkeys((*schema.REFUSED, "volume_type", "availability_zone", "metadata"))
        self.assertEqual(self.new(), self.new(**nothing, multiattach=None))

    def test_build_of_clone_takes_values_of_source(self):
        volume_type = api_context.add_type("gold")
        source = db_rows.add_volume(
            host="here@shelf#p", size_gib=2, bootable=True, volume_type_id=volume_type["id"]
        )
        values = create_params.build(self.ctx, {"source_volid": source["id"]})
        expected = {
            "size_gib": 2,
            "bootable": True,
            "source_volid": source["id"],
            "volume_type_id": volume_type["id"],
            "volume_type_name": "gold",
            "host": "here@shelf#shelf",
        }
        self.assertLessEqual(
            expected.items(), {k: v for k, v in values.items() if k != "metadata"}.items()
        )

    def test_unsupported_field_is_refused_by_name(self):
        for field in schema.REFUSED:
            by_id = field in schema.FOUND_NOWHERE
            error = exception.NotFound if by_id else exception.BadRequest
            with self.subTest(field), self.assertRaisesRegex(error, field):
                self.new(**{field: api_context.new_id()})
            with self.subTest(field), self.assertRaisesRegex(exception.BadRequest, field):
                self.new(**{field: "words"})

    def test_missing_size_is_refused(self):
        for requested in ({"size": None}, {}):
            with self.assertRaisesRegex(exception.InvalidInput, "volume.size"):
                create_params.build(self.ctx, requested)

    def test_build_without_fitting_backend_is_refused(self):
        with self.assertRaisesRegex(exception.NoValidBackend, "101 GiB"):
            self.new(size=101)


class TypesTest(Case):
    def test_type_is_found_by_name_or_id(self):
        volume_type = api_context.add_type("gold")
        for requested in (volume_type["id"], "gold"):
            values = self.new(volume_type=requested)
            self.assertEqual(
                (volume_type["id"], "gold"), (values["volume_type_id"], values["volume_type_name"])
            )

    def test_default_type_applies_without_type(self):
        volume_type = api_context.add_type("usual")
        override(self, "default_volume_type", "usual")
        for requested in (None, ""):
            self.assertEqual(volume_type["id"], self.new(volume_type=requested)["volume_type_id"])

    def test_unknown_type_is_not_found(self):
        with self.assertRaises(exception.VolumeTypeNotFound):
            self.new(volume_type="gold")

    def test_private_type_for_member_is_not_found(self):
        api_context.add_type("hidden", is_public=False)
        with self.assertRaises(exception.VolumeTypeNotFound):
            self.new(volume_type="hidden")
        self.assertEqual(
            "hidden", self.new(*api_context.ADMIN, volume_type="hidden")["volume_type_name"]
        )

    def test_multiattach_type_makes_volume_multiattach(self):
        api_context.add_type("shared", extra_specs={"multiattach": "<is> True"})
        self.assertIs(True, self.new(volume_type="shared")["multiattach"])

    def test_multiattach_type_for_reader_is_forbidden(self):
        api_context.add_type("shared", extra_specs={"multiattach": "<is> True"})
        with self.assertRaisesRegex(exception.Forbidden, "volume:multiattach"):
            self.new("reader", volume_type="shared")

    def test_multiattach_in_request_is_refused(self):
        for value in (True, "True", "1"):
            with self.assertRaisesRegex(exception.BadRequest, "multiattach"):
                self.new(multiattach=value)
        self.assertIs(False, self.new(multiattach=False)["multiattach"])


class SourcesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("here@shelf")
        api_context.report_backend("there@shelf")
        self.ctx = api_context.make_context()
        self.type_id = api_context.add_type("gold", is_public=False)["id"]

    def source(self, state="ready", ctx=None, **values):
        row = db_rows.add_volume(
            state,
            **{
                "host": "here@shelf#p",
                "size_gib": 3,
                "availability_zone": "nova",
                "volume_type_id": self.type_id,
                **values,
            },
        )
        return create_params.source_volume(ctx or self.ctx, {"source_volid": row["id"]})

    def test_source_without_source_volid_is_none(self):
        for requested in ({}, {"source_volid": None}, {"source_volid": ""}):
            self.assertIsNone(create_params.source_volume(self.ctx, requested))

    def test_source_must_be_available_or_in_use(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "attached")
        self.assertEqual(
            volume, create_params.source_volume(self.ctx, {"source_volid": volume}).id
        )
        self.assertEqual("available", self.source().status)
        for state in ("creating", "error", "deleting", "extending", "maintenance"):
            with self.assertRaisesRegex(exception.InvalidVolume, f"currently {state}"):
                self.source(state)

    def test_source_of_other_project_is_not_found(self):
        with self.assertRaises(exception.VolumeNotFound):
            self.source(project_id=api_context.OTHER_PROJECT)
        admin = api_context.make_context(*api_context.ADMIN)
        self.assertIsNotNone(self.source(ctx=admin, project_id=api_context.OTHER_PROJECT))

    def test_type_defaults_to_type_of_source(self):
        api_context.add_type("silver")
        source = self.source()
        self.assertEqual("gold", create_params.requested_type(self.ctx, {}, source)["name"])
        requested = {"volume_type": "silver"}
        self.assertEqual(
            "silver", create_params.requested_type(self.ctx, requested, source)["name"]
        )
        self.assertIsNone(
            create_params.requested_type(self.ctx, {}, self.source(volume_type_id=None))
        )
        self.assertIsNone(create_params.requested_type(self.ctx, {}, None))

    def test_size_is_at_least_size_of_source(self):
        source = self.source()
        self.assertEqual(3, create_params.requested_size({}, source))
        self.assertEqual(4, create_params.requested_size({"size": "4"}, source))
        with self.assertRaisesRegex(exception.InvalidInput, "at least that of volume .*3 GiB"):
            create_params.requested_size({"size": 2}, source)

    def test_destination_is_backend_of_source(self):
        for host in ("here@shelf", "there@shelf"):
            source = self.source(host=f"{host}#p")
            for zone in (None, "nova"):
                values = create_params.select_destination(source, 1, {}, zone)
                self.assertEqual(f"{host}#shelf", values.host)

    def test_destination_with_other_zone_or_missing_capability_is_refused(self):
        source = self.source()
        with self.assertRaisesRegex(exception.InvalidInput, ", nova"):
            create_params.select_destination(source, 1, {}, "far")
        with self.assertRaisesRegex(exception.NoValidBackend, "colour"):
            create_params.select_destination(source, 1, {"colour": "red"})
        with self.assertRaisesRegex(exception.NoValidBackend, "200 GiB are asked for"):
            create_params.select_destination(source, 200, {})

    def test_destination_with_source_backend_down_is_refused(self):
        api_context.report_backend("here@shelf", up=False)
        with self.assertRaisesRegex(exception.NoValidBackend, "down"):
            create_params.select_destination(self.source(), 1, {})


class SizeLimitsTest(unittest.TestCase):
    def check(self, size_gib, **limits):
        specs = {f"provisioning:{name}_vol_size": value for name, value in limits.items()}
        create_params.check_size({"name": "gold", "extra_specs": specs}, size_gib)

    def test_check_at_limits_succeeds(self):
        self.check(2, min="2", max="4")
        self.check(4, min="2", max="4")
        self.check(1, max="4")
        self.check(99, min="2")

    def test_check_beyond_limits_names_limit_and_type(self):
        with self.assertRaisesRegex(exception.InvalidInput, "gold allows at least 2 GiB"):
            self.check(1, min="2", max="4")
        with self.assertRaisesRegex(exception.InvalidInput, "gold allows at most 4 GiB"):
            self.check(5, min="2", max="4")

    def test_check_without_type_or_number_succeeds(self):
        create_params.check_size(None, 5)
        for nonsense in ("", "many", "-1", "1.5", None):
            self.check(5, min=nonsense, max=nonsense)
