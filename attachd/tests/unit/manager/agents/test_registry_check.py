# SPDX-License-Identifier: Apache-2.0
"""The check that all managers store reports, with answers and a message queue that tests set."""

from unittest import mock

from attachd import exception
from attachd.db.cluster import members, registry_probes
from attachd.manager.agents import registry_check
from attachd.manager.agents.registry_check import SilentManagers
from attachd.rpc import agent_transport
from attachd.tests.fixtures import databases


class RegistryCheckTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.answering = {"one", "two"}
        self.reading = {"one"}
        for name in ("one", "two", "other"):
            members.join(name, name)
        for name in self.answering:
            registry_probes.record(name, registry_probes.read_clock(), 1, by_queue=False)
        self.probed = self.patch("is_probed", return_value=True)
        self.sent = self.patch("send_registry_probes", side_effect=self.answer)
        self.consumers = self.patch("count_registry_consumers", return_value=2)

    def patch(self, name, **values):
        return self.enterContext(mock.patch.object(agent_transport, name, **values))

    def answer(self, _sent_at):
        """Answer as the managers that hear probes."""
        now = registry_probes.read_clock()
        for names, by_queue in ((self.answering, False), (self.reading, True)):
            for name in names:
                registry_probes.record(name, now, 1, by_queue=by_queue)

    def assert_silent(self, names, reason):
        with self.assertRaisesRegex(SilentManagers, reason) as raised:
            registry_check.check(0.1)
        self.assertEqual(names, raised.exception.ids)

    def test_managers_that_answer_pass(self):
        registry_check.check(60)
        self.sent.assert_called_once()

    def test_silent_manager_is_named(self):
        self.answering = {"one"}
        self.assert_silent({"two"}, "not answered in time by two")

    def test_common_queue_without_answer_concerns_all_managers(self):
        self.reading = set()
        self.assert_silent({"one", "two"}, "in time by the common queue")

    def test_unknown_consumer_of_the_queue_may_have_reports(self):
        for present in (1, 3):
            self.consumers.return_value = present
            self.assert_silent({"one", "two"}, f"{present} consumers .* are 2 of them")

    def test_manager_that_has_left_is_not_asked(self):
        registry_probes.leave("two")
        self.answering, self.consumers.return_value = {"one"}, 1
        registry_check.check(60)

    def test_broken_path_is_no_silence(self):
        self.sent.side_effect = exception.Unavailable(reason="cut")
        with self.assertRaisesRegex(exception.Unavailable, "cut"):
            registry_check.check(60)

    def test_without_message_queue_nothing_is_checked(self):
        self.probed.return_value = False
        registry_check.check(60)
        self.sent.assert_not_called()
