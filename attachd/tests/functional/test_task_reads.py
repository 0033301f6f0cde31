# SPDX-License-Identifier: Apache-2.0
"""What periodic tasks read in the database: as much with ten times as many rows.

Those that go through the attachments of a backend, page by page, are not among them: conditions,
the comparison of exports at a start, and audits.
"""

import unittest
from unittest import mock

from attachd.conf import CONF
from attachd.manager import compute_events
from attachd.manager.agents.lost_agents import LostAgents
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.manager.fenced_hosts import FencedHosts
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.drained_hosts import DrainedHostsTask
from attachd.manager.periodic_tasks.expired_sets import ExpiredSetsTask
from attachd.manager.periodic_tasks.number_events import NumberEventsTask
from attachd.manager.periodic_tasks.purge import PurgeTask
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.rpc import agent_transport
from attachd.tests.fixtures import backends, conf_fixture, large_database
from attachd.tests.fixtures.lifetime import temp_dir

SIZES = (10_000, 100_000)
"""Numbers of attachments."""
MOST = 1.2
FEW = 20
"""Rows that a run may read in any case."""


class TaskReadsTest(unittest.TestCase):
    maxDiff = None

    def test_periodic_tasks_read_the_same_with_ten_times_as_many_rows(self):
        small, large = (self.measure(attachments) for attachments in SIZES)
        limits = {name: max(FEW, round(MOST * rows)) for name, rows in small.items()}
        beyond = {name: rows for name, rows in large.items() if rows > limits[name]}
        self.assertEqual({}, beyond, f"{small} with {SIZES[0]:,} attachments")

    def measure(self, attachments):
        """Return the rows that the second run of each task reads, by its name."""
        owner = unittest.TestCase()
        try:
            CONF([], project="attachd", default_config_files=[])
            large_database.use(owner, "mariadb", attachments // 2)
            conf_fixture.override(owner, "state_path", str(temp_dir(owner)))
            conf_fixture.override(owner, "host", "storage-7")
            ten_years = 10 * 365 * 24 * 3600
            conf_fixture.override(owner, "retention", ten_years, group="events")
            found = {}
            for name, run in self.list_tasks().items():
                run()
                with large_database.record_row_reads() as counted:
                    run()
                found[name] = counted.rows
            return found
        finally:
            owner.doCleanups()

    def list_tasks(self):
        """Return a function for each task that runs it once, by its name."""
        backend = backends.FakeBackend("fast", backends.RecordingDriver())
        backend.setup()
        members = mock.Mock()
        with mock.patch.object(agent_transport, "get_registry_server"):
            agents = AgentRpcServer()
        tasks = [
            BackendHeartbeat(backend),
            RecoveryLoop(backend),
            FencedHosts(),
            LostAgents(),
            *(
                task(members)
                for task in (DrainedHostsTask, ExpiredSetsTask, NumberEventsTask, PurgeTask)
            ),
        ]
        return {
            **{type(task).__name__: task.run_once for task in tasks},
            "compute events": compute_events.send_due,
            "queues of hosts": agents.serve_hosts,
        }
