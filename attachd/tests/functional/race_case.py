# SPDX-License-Identifier: Apache-2.0
"""Test cases of calls at the same moment: on a database, and of the API."""

from collections import Counter
import logging
import multiprocessing
import unittest
from unittest import mock

from attachd import states
from attachd.conf import CONF
from attachd.db.engine import retry, session
from attachd.states import AttachmentState, VolumeState
from attachd.tests import concurrency
from attachd.tests.fixtures import conf_fixture, databases, db_rows, wsgi_api
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.wait import TIMEOUT


def outcomes(*functions):
    """Call functions at the same moment; return how often each type was returned or raised."""
    return Counter(type(outcome).__name__ for outcome in concurrency.run_at_once(*functions))


def _outcomes_in_process(url, start, function, threads):
    CONF.set_override("connection", url, group="database")
    CONF.set_override("max_pool_size", 4, group="database")
    CONF.set_override("max_overflow", 0, group="database")
    CONF.set_override("read_timeout", 120, group="database")
    CONF.set_override("retry_timeout", 120, group="database")
    start.wait(TIMEOUT)
    return outcomes(*[function] * threads)


class DatabaseRaceCase(unittest.TestCase):
    """Database functions at the same moment, which must not need a retry.

    :cvar kind: of the database
    """

    kind = "sqlite"

    def setUp(self):
        super().setUp()
        self.url = databases.use(self, self.kind)
        # Others use the server as well, and each process has two pools: for reading and writing.
        for option, value in (("max_pool_size", 8), ("max_overflow", 0)):
            conf_fixture.override(self, option, value, group="database")
        session.dispose()
        self.log = self.enterContext(mock.patch.object(retry, "LOG"))

    def tearDown(self):
        # There was no deadlock and no retry: each would have been logged.
        self.assertEqual([], [f"{call.args[-1]}"[:300] for call in self.log.method_calls])
        super().tearDown()

    def outcomes_in_processes(self, function, processes, threads):
        """Call a function in threads of several processes; return as :func:`outcomes`."""
        session.dispose()
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, context.Pool(processes) as pool:
            job = (self.url, manager.Barrier(processes), function, threads)
            return sum(pool.starmap(_outcomes_in_process, [job] * processes), Counter())


class ApiRaceCase(ApiCase):
    """API calls at the same moment.

    :cvar allows_unknown_access: whether the backend may have grants of attachments in doubt
    """

    allows_unknown_access = False

    def setUp(self):
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def add_volume(self, **values):
        return str(db_rows.add_volume(project_id=wsgi_api.PROJECT, **values)["id"])

    def run_at_once(self, *functions):
        """Call functions at the same moment; raise what one of them raises."""
        for outcome in concurrency.run_at_once(*functions):
            if isinstance(outcome, BaseException):
                raise outcome

    def assert_consistent(self, volume_id):
        """Check that rows, volume status and backend agree."""
        volume, rows = db_rows.get_volume(volume_id), db_rows.list_attachments(volume_id)
        held = [AttachmentState(row["state"]) for row in rows]
        derived = states.derive(VolumeState(volume["state"]), held, volume["pending_detaches"])
        self.assertEqual(derived, (volume["status"], volume["attach_status"]))
        reaching = {row["id"] for row in rows if row["state"] in states.LIVE and row["connector"]}
        granted = self.driver.granted()
        if self.allows_unknown_access:
            granted -= {row["id"] for row in rows if row["state"] in states.ACCESS_UNKNOWN}
        self.assertEqual(reaching, granted)
