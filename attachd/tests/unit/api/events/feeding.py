# SPDX-License-Identifier: Apache-2.0
"""Fixtures with events, for the tests beside this file."""

import threading

from attachd.api.events.broadcaster import Broadcaster
from attachd.db import models
from attachd.db.attachments import events
from attachd.db.engine import session
from attachd.tests.fixtures import db_rows
from attachd.tests.wait import TIMEOUT


def add_event(number=1, **values):
    """Record an event of an attachment, and return its id."""
    row = {"id": models.new_id(), "project_id": db_rows.PROJECT, "volume_id": models.new_id()}
    row |= values
    for _ in range(number):
        with session.writer() as connection:
            events.record(connection, row, "reserved")
    return row["id"]


def end(broadcaster: Broadcaster) -> None:
    """Close a broadcaster and wait for its thread, which would read the next test's database."""
    broadcaster.close()
    for thread in threading.enumerate():
        if thread.name == "events":
            thread.join(TIMEOUT)
