# SPDX-License-Identifier: Apache-2.0
"""The answers of managers to probes in the database."""

import datetime

import sqlalchemy as sa

from attachd.db import models
from attachd.db.cluster import members, registry_probes
from attachd.db.engine import session
from attachd.tests.fixtures import databases

SECOND = datetime.timedelta(seconds=1)


class RegistryProbesTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        for name in ("one", "two"):
            members.join(name, name)
        self.sent_at = registry_probes.read_clock()

    def record(self, name, seconds=0, *, by_queue=False):
        time = self.sent_at + seconds * SECOND
        registry_probes.record(name, time, 1, by_queue=by_queue)

    def servers(self, seconds=0):
        found = registry_probes.list_servers(self.sent_at + seconds * SECOND)
        return {item.name: (item.is_answering, item.is_reading_queue) for item in found}

    def test_process_serves_agents_from_its_first_answer_until_it_leaves(self):
        self.assertEqual({}, self.servers())
        self.record("one")
        self.assertEqual({"one": (True, False)}, self.servers())
        registry_probes.leave("one")
        self.assertEqual({}, self.servers())

    def test_answer_to_later_probe_is_one_to_earlier_probe(self):
        self.record("one", by_queue=True)
        self.assertEqual({"one": (False, True)}, self.servers(-5))
        self.assertEqual({"one": (False, False)}, self.servers(1))

    def test_answer_to_earlier_probe_changes_nothing(self):
        self.record("one")
        self.record("one", -5)
        self.assertEqual({"one": (True, False)}, self.servers())

    def test_time_in_the_future_is_no_answer(self):
        self.record("one", -1)
        self.record("one", 1000)
        self.assertEqual({"one": (False, False)}, self.servers())

    def test_clock_of_database_that_was_set_back_is_followed(self):
        future = self.sent_at + 1000 * SECOND
        session.write(sa.update(models.members).values(probed_at=future, consumers=1))
        self.assertEqual({(False, False)}, set(self.servers().values()))
        self.record("one")
        self.assertEqual((True, False), self.servers()["one"])
