# SPDX-License-Identifier: Apache-2.0

from attachd.manager.periodic_tasks import remember_clients
from attachd.manager.periodic_tasks.remember_clients import RememberClientsTask
from attachd.tests.fixtures import backends


class RememberClientsTaskTest(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.task = RememberClientsTask(self.backend)
        self.driver.calls.clear()

    def recorded(self):
        return [call.method for call in self.driver.calls].count("remember_clients")

    def test_clients_are_recorded_while_the_backend_is_up(self):
        self.task.run_once()
        self.assertEqual(1, self.recorded())
        self.backend.take_down(OSError("away"))
        self.task.run_once()
        self.assertEqual(1, self.recorded())

    def test_driver_that_does_not_need_it_is_left_alone(self):
        self.backend.driver = backends.without_abilities(self.driver)
        self.task.run_once()
        self.assertEqual(0, self.recorded())

    def test_failure_is_logged(self):
        with (
            self.driver.failing("remember_clients"),
            self.assertLogs(remember_clients.__name__, "WARNING") as logged,
        ):
            self.task.run_once()
        self.assertIn("clients of hosts are not recorded", logged.output[0])
