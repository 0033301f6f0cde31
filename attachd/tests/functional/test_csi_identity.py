# SPDX-License-Identifier: Apache-2.0
"""The process attachd-csi: its start, its end, and whether it says that it is ready."""

import re
import stat
import unittest
import urllib.request

from attachd import service
from attachd.tests import wait
from attachd.tests.fixtures import csi_driver, deployments, lifetime, metric_samples, processes
from attachd.tests.selection import full_only

NOWHERE = "http://127.0.0.1:1"


class IdentityTest(unittest.TestCase):
    def test_driver_of_running_api_is_ready(self):
        driver = csi_driver.CsiDriver(self, deployments.shared_all_in_one(self).url)
        for _ in range(2):
            self.assertTrue(driver.call("Probe").ready.value)
            info = driver.call("GetPluginInfo")
            self.assertEqual(
                ("csi.attachd.org", service.version()), (info.name, info.vendor_version)
            )
            self.assertTrue(driver.call("GetPluginCapabilities").capabilities)
        self.assertEqual(0o600, stat.S_IMODE(driver.socket.stat().st_mode))

    def test_driver_without_api_is_not_ready_and_logs_reason(self):
        driver = csi_driver.CsiDriver(self, NOWHERE)
        self.assertFalse(driver.call("Probe").ready.value)
        self.assertIn(f"No Block Storage API answers at {NOWHERE}", driver.process.output)

    def test_metrics_count_calls_by_name_and_outcome(self):
        driver = csi_driver.CsiDriver(self, NOWHERE, "--mode=controller", "--metrics=127.0.0.1:0")
        place = driver.process.wait_for(r"Metrics are at (http://\S+)")[1]
        driver.call("GetPluginInfo")
        driver.fail("INVALID_ARGUMENT", "DeleteVolume")
        with urllib.request.urlopen(place, timeout=wait.TIMEOUT) as answer:
            samples = metric_samples.parse_samples(answer.read().decode())
        for name, number, labels in (
            ("calls_total", 1.0, {"call": "GetPluginInfo", "outcome": "ok"}),
            ("calls_total", 2.0, {"call": "DeleteVolume", "outcome": "invalid_argument"}),
            ("call_duration_seconds_count", 2.0, {"call": "DeleteVolume"}),
            ("calls_in_progress", 0.0, {"call": "DeleteVolume"}),
        ):
            key = f"attachd_platform_{name}", frozenset({"driver": "csi", **labels}.items())
            self.assertEqual(number, samples.get(key), key)
        self.assertEqual(0, driver.process.end())


@full_only("containers")
class RefusedTest(unittest.TestCase):
    """A driver that may not serve, or has to end."""

    def test_driver_with_wrong_password_is_not_healthy(self):
        folder = lifetime.temp_dir(self)
        (folder / "users").touch(0o600)
        (folder / "roles").write_text("{}")
        service_process = deployments.AllInOne.configured(
            self,
            f"[api]\nauth_strategy = http_basic\nhttp_basic_user_file = {folder}/users\n"
            f"http_basic_roles_file = {folder}/roles\n",
        )
        variables = {
            "OS_AUTH_TYPE": "http_basic",
            "OS_ENDPOINT": f"{service_process.url}/v3",
            "OS_USERNAME": "user",
            "OS_PASSWORD": "wrong",
        }
        driver = csi_driver.CsiDriver(
            self, service_process.url, "--mode=controller", variables=variables
        )
        self.assertRegex(driver.fail("FAILED_PRECONDITION", "Probe"), re.compile("401|wrong|auth"))

    def test_driver_ends_on_signal_and_starts_again_after_kill(self):
        driver = csi_driver.CsiDriver(self, NOWHERE)
        driver.kill()
        self.assertTrue(driver.socket.is_socket())
        driver.start()
        self.assertTrue(driver.call("GetPluginInfo").name)
        self.assertEqual(0, driver.process.end())
        self.assertFalse(driver.socket.exists())

    def test_second_driver_at_socket_is_refused(self):
        driver = csi_driver.CsiDriver(self, NOWHERE)
        text = processes.check_output(
            [
                processes.script("attachd-csi"),
                f"--endpoint=unix://{driver.socket}",
                "--mode=controller",
            ],
            code=1,
            env=processes.environment(OS_AUTH_TYPE="none", OS_ENDPOINT=f"{NOWHERE}/v3"),
        )
        self.assertIn("Another process serves", text)
        self.assertEqual("csi.attachd.org", driver.call("GetPluginInfo").name)
