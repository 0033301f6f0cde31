# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of transfers, below HTTP."""

import webob

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.transfers import handlers
from attachd.tests.fixtures import api_context, db_rows


class Case(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.links = api_context.make_links()
        self.ctx = api_context.make_context()
        self.other = api_context.make_context(project=api_context.OTHER_PROJECT)
        self.volume = db_rows.add_volume()["id"]

    def create(self, **fields):
        body = {"transfer": {"volume_id": self.volume, **fields}}
        return handlers.create(self.ctx, body, mv.LATEST, self.links)["transfer"]


class CreateTest(Case):
    def test_create_strips_name_and_returns_key(self):
        shown = self.create(name=" n ", no_snapshots="true")
        self.assertEqual(("n", True), (shown["name"], shown["no_snapshots"]))
        self.assertEqual(32, len(shown["auth_key"]))
        self.assertEqual("awaiting-transfer", db_rows.get_volume(self.volume)["status"])

    def test_create_without_name_and_with_null_has_none(self):
        for fields in ({}, {"name": None}):
            self.volume = db_rows.add_volume()["id"]
            self.assertIsNone(self.create(**fields)["name"])

    def test_create_of_foreign_volume_is_not_found(self):
        self.volume = db_rows.add_volume(project_id=api_context.OTHER_PROJECT)["id"]
        with self.assertRaises(exception.VolumeNotFound):
            self.create()


class EndTest(Case):
    def accept(self, transfer, key):
        body = {"accept": {"auth_key": key}}
        return handlers.accept(self.other, transfer["id"], body, self.links)

    def test_accept_takes_key_as_text_or_number(self):
        transfer = self.create()
        for key in ("x", 5):
            with self.assertRaises(exception.InvalidAuthKey):
                self.accept(transfer, key)
        self.accept(transfer, transfer["auth_key"])
        volume = db_rows.get_volume(self.volume)
        self.assertEqual(
            (api_context.OTHER_PROJECT, "u"), (volume["project_id"], volume["user_id"])
        )

    def test_delete_and_show_need_the_own_project(self):
        transfer = self.create()
        with self.assertRaises(exception.TransferNotFound):
            handlers.show(self.other, transfer["id"], mv.LATEST, self.links)
        with self.assertRaises(exception.TransferNotFound):
            handlers.delete(self.other, transfer["id"])
        shown = handlers.show(self.ctx, transfer["id"], mv.LATEST, self.links)["transfer"]
        self.assertEqual({"auth_key"}, transfer.keys() - shown.keys())
        handlers.delete(self.ctx, transfer["id"])
        self.assertEqual("available", db_rows.get_volume(self.volume)["status"])


class ListTest(Case):
    def test_former_lists_are_in_order_of_creation_and_new_ones_as_requested(self):
        made = []
        for _ in range(3):
            self.volume = db_rows.add_volume()["id"]
            made.append(self.create()["id"])
        query = {"sort": "created_at:desc", "limit": "2"}
        for path, expected, more in (
            ("/volume-transfers", made[:0:-1], 1),
            # It knows no marker, so a link would lead to the same page.
            ("/os-volume-transfer", made[:2], 0),
        ):
            for function, end in ((handlers.index, ""), (handlers.detail, "/detail")):
                for start in ("/v3", "/v3/detail"):
                    request = webob.Request.blank(f"{start}{path}{end}")
                    answer = function(self.ctx, query, mv.LATEST, self.links, request)
                    self.assertEqual(expected, [item["id"] for item in answer["transfers"]])
                    links = [link["href"] for link in answer.get("transfers_links", ())]
                    self.assertEqual(more, len(links))
                    for link in links:
                        self.assertIn(f"/{db_rows.PROJECT}{path}{end}?", link)

    def test_unknown_filter_is_ignored_before_its_version(self):
        self.create()
        query = {"unknown": "x"}
        request = webob.Request.blank("/v3/volume-transfers")
        answer = handlers.index(self.ctx, query, mv.Version(3, 30), self.links, request)
        self.assertEqual(1, len(answer["transfers"]))
        with self.assertRaisesRegex(exception.BadRequest, "unknown"):
            handlers.index(self.ctx, query, mv.LATEST, self.links, request)
