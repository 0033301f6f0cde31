# SPDX-License-Identifier: Apache-2.0
"""A base test case with a volume, a caller and a replaced manager."""

from unittest import mock

import webob

from attachd.api.legacy import handlers
from attachd.rpc import manager_api
from attachd.tests.fixtures import api_context, db_rows

SERVER = "11111111-1111-4111-8111-111111111111"
ISCSI = {"driver_volume_type": "iscsi", "data": {"target_lun": 1}}


class Case(api_context.ApiContextCase):
    """A test with a database, and manager_api replaced."""

    def setUp(self):
        """Create a volume."""
        super().setUp()
        self.manager_api = mock.Mock(spec=manager_api)
        for name in ("initialize_connection", "terminate_connections", "detach", "force_detach"):
            self.enterContext(
                mock.patch.object(manager_api, name, getattr(self.manager_api, name))
            )
        self.manager_api.initialize_connection.return_value = {
            "connection_info": ISCSI,
            "mode": "ro",
        }
        self.manager_api.detach.return_value = self.manager_api.force_detach.return_value = []
        self.request = webob.Request.blank("/")
        self.ctx = api_context.make_context()
        self.volume_id = db_rows.add_volume()["id"]

    def attach(self, **body):
        """Call os-attach."""
        body = {"mountpoint": "/dev/vdb", "instance_uuid": SERVER} | body
        handlers.attach(self.ctx, self.volume_id, body)

    def other_user(self):
        """Return another user of the same project."""
        ctx = api_context.make_context()
        ctx.user_id = "other"
        return ctx

    def connect(self, **values):
        """Add a connection; return its id."""
        values = {"kind": "connection", "user_id": self.ctx.user_id, **values}
        return db_rows.add_attachment(self.volume_id, "connected", **values)["id"]

    def status(self):
        """Return the volume's status."""
        return db_rows.get_volume(self.volume_id)["status"]

    def kinds(self):
        """Return the kinds of the volume's rows."""
        return [row["kind"] for row in db_rows.list_attachments(self.volume_id)]

    def closed(self):
        """Return the arguments of the calls that close connections."""
        return [call.args[2:] for call in self.manager_api.terminate_connections.call_args_list]
