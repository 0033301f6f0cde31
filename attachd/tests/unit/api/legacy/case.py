# SPDX-License-Identifier: Apache-2.0
"""A volume, somebody who asks, and a manager that only notes what it is asked; for the tests."""

import unittest
from unittest import mock

import webob

from attachd.api.legacy import handlers
from attachd.rpc import manager_api
from attachd.tests import asking, rows

SERVER = "11111111-1111-4111-8111-111111111111"
ISCSI = {"driver_volume_type": "iscsi", "data": {"target_lun": 1}}


class Case(unittest.TestCase):
    """Each test has a database, and manager_api replaced."""

    def setUp(self):
        """Make a volume."""
        super().setUp()
        asking.use(self)
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
        self.ctx = asking.context()
        self.volume_id = rows.add_volume()["id"]

    def attach(self, **body):
        """Call os-attach."""
        body = {"mountpoint": "/dev/vdb", "instance_uuid": SERVER} | body
        handlers.attach(self.ctx, self.volume_id, body)

    def somebody_else(self):
        """Return another user of the same project."""
        ctx = asking.context()
        ctx.user_id = "other"
        return ctx

    def connect(self, **values):
        """Put a connection there, and return its id."""
        values = {"kind": "connection", "user_id": self.ctx.user_id, **values}
        return rows.add_attachment(self.volume_id, "connected", **values)["id"]

    def status(self):
        """Return the volume's."""
        return rows.volume(self.volume_id)["status"]

    def kinds(self):
        """Return those of the rows there are."""
        return [row["kind"] for row in rows.attachments(self.volume_id)]

    def closed(self):
        """Return what connections were asked to be closed."""
        return [call.args[2:] for call in self.manager_api.terminate_connections.call_args_list]
