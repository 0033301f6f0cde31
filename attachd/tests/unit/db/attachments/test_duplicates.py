# SPDX-License-Identifier: Apache-2.0
"""Repeated requests; those of async_requests and os-attach are tested with their callers."""

import unittest

from attachd import exception
from attachd.db.attachments import attachment_store, duplicates
from attachd.states import AttachmentState
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows

WANTED = {
    "project_id": "p",
    "user_id": "u",
    "instance_uuid": "i",
    "asked_mode": None,
    "connector": {"host": "compute-1", "mountpoint": "/dev/vdb"},
}
FAILED = {"connect_failed", "connect_unknown"}
AT_AGENT = {**WANTED, "agent": "compute-1"}


def row(**values):
    return {
        "id": "a1",
        "kind": "attachment",
        "state": "connected",
        "agent": None,
        "move_from": None,
        **WANTED,
        **values,
    }


class FindDuplicateTest(unittest.TestCase):
    def test_find_duplicate_returns_unfinished_row_with_same_values(self):
        found = {
            state
            for state in AttachmentState
            if duplicates.find_duplicate(None, WANTED, [row(state=state.value)])
        }
        self.assertEqual({"reserved", "connecting", "connected", *FAILED}, found)

    def test_find_duplicate_among_other_rows_returns_it(self):
        attachment = row(id="a2")
        self.assertIs(
            attachment, duplicates.find_duplicate(None, WANTED, [row(user_id="v"), attachment])
        )
        self.assertIsNone(duplicates.find_duplicate(None, WANTED, []))

    def test_find_duplicate_prefers_row_that_has_not_failed(self):
        rows = [row(id="a2", state="connect_failed"), row(state="connected")]
        self.assertEqual("a1", duplicates.find_duplicate(None, WANTED, rows)["id"])

    def test_find_duplicate_with_any_difference_returns_none(self):
        for values in (
            {"project_id": "q"},
            {"user_id": "v"},
            {"user_id": None},
            {"instance_uuid": "j"},
            {"instance_uuid": None},
            {"asked_mode": "ro"},
            {"connector": None},
            {"connector": {"host": "compute-2", "mountpoint": "/dev/vdb"}},
            {"connector": {"host": "compute-1"}},
            {"kind": "connection"},
            {"kind": "legacy"},
            {"agent": "compute-1"},
        ):
            with self.subTest(values):
                self.assertIsNone(duplicates.find_duplicate(None, WANTED, [row(**values)]))

    def test_find_duplicate_completed_by_agent_returns_it(self):
        wanted = {"agent": "compute-1"}
        found = {
            state
            for state in AttachmentState
            if duplicates.find_duplicate(None, AT_AGENT, [row(state=state.value, **wanted)])
        }
        self.assertEqual({"reserved", "connecting", "connected", "attached", *FAILED}, found)

    def test_find_duplicate_at_agent_ignores_connector(self):
        attachment = row(agent="compute-1", connector={"host": "compute-1", "ip": "10.0.0.2"})
        self.assertIs(attachment, duplicates.find_duplicate(None, AT_AGENT, [attachment]))
        for other in (row(), row(agent="compute-2"), row(agent="compute-1", user_id="v")):
            self.assertIsNone(duplicates.find_duplicate(None, AT_AGENT, [other]))

    def test_find_duplicate_without_server_or_connector_returns_none(self):
        for name in ("instance_uuid", "connector"):
            with self.subTest(name):
                unsaid = {**WANTED, name: None}
                self.assertIsNone(duplicates.find_duplicate(None, unsaid, [row(**{name: None})]))
                del unsaid[name]
                self.assertIsNone(duplicates.find_duplicate(None, unsaid, [row(**{name: None})]))


class ReserveTest(databases.DatabaseCase):
    def test_reserve_repeated_returns_same_attachment(self):
        wanted = {
            "project_id": db_rows.PROJECT,
            "user_id": "u",
            "instance_uuid": "server",
            "connector": db_rows.CONNECTOR,
        }
        for multiattach in (False, True):
            volume = db_rows.add_volume(multiattach=multiattach)["id"]
            found = concurrency.run_at_once(
                *[lambda v=volume: attachment_store.reserve(v, wanted)] * 4
            )
            self.assertEqual(1, len({row["id"] for row in found}), found)
            elsewhere = {**wanted, "connector": db_rows.OTHER_CONNECTOR}
            self.assertNotEqual(found[0]["id"], attachment_store.reserve(volume, elsewhere)["id"])
            self.assertEqual(2, len(db_rows.list_attachments(volume)))


class CheckConnectorTest(unittest.TestCase):
    def check(self, requested, **values):
        duplicates.check_connector({"id": "a1", "host": None, **values}, requested)

    def test_check_connector_ignores_mountpoint_of_connector(self):
        connector = {"host": "h", "mountpoint": "/dev/vdb"}
        with self.assertRaises(duplicates.AlreadyConnected):
            self.check({"host": "h"}, state="connected", connector=connector)
        with self.assertRaises(exception.ConnectorConflict):
            self.check({"host": "g"}, state="connected", connector=connector, host="h")
        self.check({"host": "g"}, state="reserved", connector=connector)
