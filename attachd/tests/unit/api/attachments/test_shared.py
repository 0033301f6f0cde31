# SPDX-License-Identifier: Apache-2.0
"""Who may know who else uses a connection."""

import unittest

from attachd.api.attachments import shared
from attachd.objects import Attachment
from attachd.tests import asking, rows

KEY = "1" * 64


class SharedTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        self.mine, self.same, self.others = (
            rows.add_attachment(
                rows.add_volume(project_id=project)["id"],
                "attached",
                project_id=project,
                connection_key=KEY,
            )
            for project in (rows.PROJECT, rows.PROJECT, asking.OTHER_PROJECT)
        )
        self.all = [self.same["id"], self.others["id"]]

    def beside(self, ctx):
        return shared.beside(ctx, [self.mine])[self.mine["id"]]

    def test_a_project_sees_its_own(self):
        self.assertEqual([self.same["id"]], self.beside(asking.context()))

    def test_an_administrator_sees_all(self):
        self.assertEqual(self.all, self.beside(asking.context(*asking.ADMIN)))

    def test_a_service_that_vouches_for_a_request_sees_all(self):
        ctx = asking.context()
        ctx.service_roles = ["service"]
        self.assertEqual(self.all, self.beside(ctx))

    def test_a_connection_is_looked_at_when_its_attachment_is_gone(self):
        for ctx, expected in (
            (asking.context(), [self.same["id"]]),
            (asking.context(*asking.ADMIN), self.all),
        ):
            connection = shared.Connection(ctx, Attachment.get(ctx, self.mine["id"]))
            self.assertEqual(expected, [row["id"] for row in connection.users()])
        rows.remove_attachment(self.mine["id"])
        self.assertEqual(self.all, [row["id"] for row in connection.users()])
        rows.change_attachment(self.same["id"], state="disconnecting")
        self.assertEqual([self.others["id"]], [row["id"] for row in connection.users()])
