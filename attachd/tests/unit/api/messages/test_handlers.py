# SPDX-License-Identifier: Apache-2.0
"""Tests of messages to users."""

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.messages import handlers
from attachd.db import messages
from attachd.tests.fixtures import api_context, db_rows


class HandlersTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.own = self.add()
        self.strange = self.add(api_context.OTHER_PROJECT)

    def add(self, project=db_rows.PROJECT):
        volume_id = api_context.new_id()
        news = messages.NewMessage(volume_id, project, messages.CREATE, messages.UNKNOWN, None)
        messages.create(news, 60)
        return next(
            row["id"]
            for row in messages.page({}, handlers.paging.read({}, handlers.SORT_KEYS))
            if row["resource_uuid"] == volume_id
        )

    def index(self, *roles, version=mv.LATEST, **query):
        answer = handlers.index(
            api_context.make_context(*roles), query, version, api_context.make_links()
        )
        return [message["id"] for message in answer["messages"]], answer

    def test_users_list_messages_of_their_project(self):
        for roles in ((), ("reader",), api_context.ADMIN):
            self.assertEqual([self.own], self.index(*roles)[0])

    def test_administrators_may_list_all_projects(self):
        found = self.index(*api_context.ADMIN, all_tenants="1")[0]
        self.assertEqual({self.own, self.strange}, set(found))
        self.assertEqual([self.own], self.index(all_tenants="1")[0])

    def test_administrators_may_list_other_project(self):
        other = api_context.OTHER_PROJECT
        self.assertEqual([self.strange], self.index(*api_context.ADMIN, project_id=other)[0])
        with self.assertRaises(exception.BadRequest):
            self.index(project_id=other)
        early = mv.Version(3, 30)
        self.assertEqual([self.own], self.index(project_id=other, version=early)[0])

    def test_pages_and_filters_exist_since_3_5(self):
        second = self.add()
        found, answer = self.index(limit="1", version=mv.Version(3, 5))
        self.assertEqual([second], found)
        self.assertIn("marker=", answer["messages_links"][0]["href"])
        self.assertEqual([self.own], self.index(limit="1", marker=second)[0])
        self.assertEqual([], self.index(event_id="x")[0])
        for query in ({"limit": "1"}, {"event_id": "x"}, {"sort": "nonsense"}):
            found, answer = self.index(version=mv.Version(3, 4), **query)
            self.assertEqual([second, self.own], found)
            self.assertNotIn("messages_links", answer)

    def test_unknown_filter_is_refused_since_3_31(self):
        with self.assertRaises(exception.BadRequest):
            self.index(colour="red")
        self.assertEqual([self.own], self.index(colour="red", version=mv.Version(3, 30))[0])

    def test_message_is_shown_to_project_and_administrators(self):
        for roles in ((), ("reader",)):
            ctx = api_context.make_context(*roles)
            shown = handlers.show(ctx, self.own, api_context.make_links())["message"]
            self.assertEqual(self.own, shown["id"])
            with self.assertRaises(exception.MessageNotFound):
                handlers.show(ctx, self.strange, api_context.make_links())
        shown = handlers.show(
            api_context.make_context(*api_context.ADMIN), self.strange, api_context.make_links()
        )
        self.assertEqual(self.strange, shown["message"]["id"])

    def test_message_is_deleted_by_members(self):
        with self.assertRaisesRegex(exception.Forbidden, "message:delete"):
            handlers.delete(api_context.make_context("reader"), self.own)
        with self.assertRaises(exception.MessageNotFound):
            handlers.delete(api_context.make_context(), self.strange)
        handlers.delete(api_context.make_context(), self.own)
        self.assertEqual([], self.index()[0])


ROW = {
    "id": "m",
    "event_id": "VOLUME_VOLUME_007_010",
    "action_id": "007",
    "detail_id": "010",
    "details": None,
    "message_level": "ERROR",
    "created_at": "then",
    "expires_at": "later",
    "request_id": "req-1",
    "resource_type": "VOLUME",
    "resource_uuid": "v",
}


class ViewTest(api_context.ApiContextCase):
    def test_ids_become_text(self):
        shown = handlers.message_view(ROW, api_context.make_links())
        said = "extend volume:The backend could not extend the volume. Have an administrator reset"
        self.assertEqual(said, shown["user_message"][: len(said)])
        self.assertEqual(("then", "later"), (shown["created_at"], shown["guaranteed_until"]))
        self.assertIn("/messages/m", shown["links"][0]["href"])
        self.assertEqual({"self", "bookmark"}, {link["rel"] for link in shown["links"]})

    def test_details_are_filled_in(self):
        details = {"user_id": "100%", "attachment_id": "a"}
        row = ROW | {"action_id": "102", "detail_id": "102", "details": details}
        self.assertEqual(
            "delete attachment:User 100% had attachment a deleted by force.",
            handlers.message_view(row, api_context.make_links())["user_message"],
        )

    def test_unknown_ids_have_default_text(self):
        shown = handlers.message_view(
            ROW | {"action_id": "999", "detail_id": "999"}, api_context.make_links()
        )
        self.assertRegex(shown["user_message"], "^unknown action:An unknown error occurred")
