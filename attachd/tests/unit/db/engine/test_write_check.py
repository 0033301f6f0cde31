# SPDX-License-Identifier: Apache-2.0
"""The check that the database stores what is written, with servers that refuse to."""

import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session, write_check
from attachd.tests.fixtures import databases

READ_ONLY = {
    "mariadb": {"init_command": "SET SESSION TRANSACTION READ ONLY"},
    "postgresql": {"options": "-c default_transaction_read_only=on"},
}
"""Parameters of connections that refuse to write, as all do while a server is a standby."""


class WriteCheckTest(unittest.TestCase):
    def test_writable_database_passes_and_keeps_nothing(self):
        for kind in databases.KINDS:
            with self.subTest(kind=kind):
                databases.use(self, kind)
                write_check.check_writable()
                self.assertEqual([], session.fetch_all(sa.select(models.host_locks)))

    def test_read_only_server_is_unavailable_by_name(self):
        for kind, parameters in READ_ONLY.items():
            with self.subTest(kind=kind):
                url = sa.make_url(databases.use(self, kind)).update_query_dict(parameters)
                session.dispose()
                changed = url.render_as_string(hide_password=False)
                CONF.set_override("connection", changed, group="database")
                with self.assertRaisesRegex(exception.Unavailable, "database is read-only"):
                    write_check.check_writable()

    def test_read_only_sqlite_is_unavailable_by_name(self):
        databases.use(self)

        def limit(connection, _record):
            connection.execute("PRAGMA query_only = 1")

        session.dispose()
        sa.event.listen(sa.engine.Engine, "connect", limit)
        self.addCleanup(sa.event.remove, sa.engine.Engine, "connect", limit)
        with self.assertRaisesRegex(exception.Unavailable, "database is read-only"):
            write_check.check_writable()
