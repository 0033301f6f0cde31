# SPDX-License-Identifier: Apache-2.0
"""Tests of attachd-all-in-one as a command."""

import functools
import os
from pathlib import Path
import signal
import socket
import sqlite3
import stat
import threading
import unittest

import requests

from attachd.tests.fixtures import lifetime, processes
from attachd.tests.fixtures.deployments import AllInOne
from attachd.tests.fixtures.http_client import Client
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

SLOW = """\
[DEFAULT]
enabled_backends = slow
[manager]
service_down_time = 600
[slow]
driver = fake
fake_delay = {delay}
"""


def run(*arguments, **variables):
    """Run it where it should refuse to start; returns exit code, output and errors."""
    done = processes.run(
        [processes.script("attachd-all-in-one"), *arguments],
        env=processes.environment(**variables),
    )
    return done.returncode, done.stdout, done.stderr


def attach(api, volume):
    body = {"attachment": {"volume_uuid": volume, "connector": {"host": "here"}}}
    return api.request_json("POST", "/attachments", body)["attachment"]


@full_only("deployments")
class StateTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.state = lifetime.temp_dir(self) / "new" / "state"

    def start(self, *arguments):
        # Loop devices would outlive a test that fails.
        plain = lifetime.temp_dir(self) / "plain.conf"
        plain.write_text("[file]\nfile_loop_devices = never\n")
        process = AllInOne(self, self.state, f"--config-file={plain}", *arguments)
        return process, Client(f"{process.url}/v3")

    def test_all_in_one_second_start_keeps_state(self):
        process, api = self.start()
        volume = api.create_volume()
        attachment = attach(api, volume)
        key = (self.state / "secrets.key").read_text()
        database = sorted(self.state.glob("attachd.sqlite*"))
        self.assertIn(b"encrypted:2:", b"".join(file.read_bytes() for file in database))
        device = Path(attachment["connection_info"]["device_path"])
        with device.open("r+b") as disk:
            disk.write(b"what was written")
        api.request_json("POST", f"/attachments/{attachment['id']}/action", {"os-complete": {}})
        self.assertEqual(0, process.end())

        process, api = self.start()
        self.assertEqual("in-use", api.status(volume))
        again = api.request_json("GET", f"/attachments/{attachment['id']}")["attachment"]
        self.assertEqual("attached", again["status"])
        self.assertEqual(str(device), again["connection_info"]["device_path"])
        self.assertEqual(key, (self.state / "secrets.key").read_text())
        with device.open("rb") as disk:
            self.assertEqual(b"what was written", disk.read(16))
        api.request_json("DELETE", f"/attachments/{attachment['id']}")
        api.request_json("DELETE", f"/volumes/{volume}")
        self.assertEqual(0, process.end())

    def test_all_in_one_without_authentication_refuses_other_host_names(self):
        process, _api = self.start()
        port = process.url.rpartition(":")[2]
        for host, status in (
            (f"127.0.0.1:{port}", 200),
            (f"localhost:{port}", 200),
            (f"page.example.org:{port}", 400),
        ):
            with self.subTest(host):
                answer = requests.get(
                    f"{process.url}/v3/volumes", headers={"Host": host}, timeout=TIMEOUT
                )
                self.assertEqual(status, answer.status_code, answer.text)
        self.assertIn("not this server", answer.json()["badRequest"]["message"])

    def test_all_in_one_after_kill_starts(self):
        process, api = self.start()
        volume = api.create_volume()
        process.kill()
        _process, api = self.start()
        self.assertEqual("available", api.status(volume))

    def test_all_in_one_state_is_not_readable_by_others(self):
        _process, api = self.start()
        attach(api, api.create_volume())
        found = [self.state, *self.state.rglob("*")]
        self.assertGreater(len(found), 5)
        open_to_others = [
            str(path)
            for path in found
            if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077
        ]
        self.assertEqual([], open_to_others)

    def test_all_in_one_state_directory_follows_xdg_specification(self):
        home = lifetime.temp_dir(self)
        for variables, expected in (
            ({"HOME": str(home)}, home / ".local/state/attachd"),
            ({"HOME": str(home), "XDG_STATE_HOME": str(home / "x")}, home / "x/attachd"),
            ({"HOME": str(home), "XDG_STATE_HOME": "relative"}, home / ".local/state/attachd"),
        ):
            with self.subTest(variables=variables):
                code, output, _errors = run("--help", COLUMNS="500", **variables)
                self.assertEqual(0, code)
                self.assertIn(f"missing: {expected}\n", output)

    def test_all_in_one_configuration_file_adds_backends_and_options(self):
        own = self.state.parent.parent / "own.conf"
        own.write_text(
            "[DEFAULT]\nenabled_backends = file, second\nstorage_availability_zone = home\n"
            "[second]\ndriver = fake\n"
        )
        _process, api = self.start(f"--config-file={own}")
        services = api.request_json("GET", "/os-services")["services"]
        self.assertEqual(
            {("all-in-one@file", "home", "up"), ("all-in-one@second", "home", "up")},
            {(service["host"], service["zone"], service["state"]) for service in services},
        )

    def test_all_in_one_state_directory_may_have_special_characters(self):
        self.state = lifetime.temp_dir(self) / "odd %s #1 {x}"
        process, api = self.start()
        api.create_volume()
        self.assertEqual(0, process.end())
        self.assertTrue((self.state / "attachd.sqlite").is_file())


@full_only("deployments")
class EndTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.state = lifetime.temp_dir(self) / "state"

    def slow(self, delay):
        process = self.begin(delay)
        api = Client(f"{process.url}/v3")
        # It does not wait long for its first report, which is slow too.
        services = functools.partial(api.request_json, "GET", "/os-services")
        wait_until(
            lambda: "up" in [service["state"] for service in services()["services"]],
            lambda: process.output,
        )
        return process, api

    def begin(self, delay):
        own = self.state.parent / "slow.conf"
        own.write_text(SLOW.format(delay=delay))
        return AllInOne(self, self.state, f"--config-file={own}")

    def test_all_in_one_on_signal_exits_0_silently(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number.name):
                process = AllInOne(self, self.state)
                requests.get(process.url, timeout=TIMEOUT)
                before = process.output
                self.assertEqual(0, process.end(number))
                self.assertEqual(before, process.output)

    def test_all_in_one_on_signal_answers_request_in_progress(self):
        process, api = self.slow(delay=1.5)
        volume = api.create_volume()
        answers = []
        client = threading.Thread(target=lambda: answers.append(attach(api, volume)))
        client.start()
        api.wait_until_attaching()
        self.assertEqual(0, process.end())
        client.join(TIMEOUT)
        self.assertEqual(1, len(answers))
        self.assertEqual(volume, answers[0]["connection_info"]["volume_id"])

    def test_all_in_one_on_signal_finishes_accepted_work(self):
        process, api = self.slow(delay=1)
        body = {"volume": {"size": 1}}
        volume = api.request_json("POST", "/volumes", body)["volume"]
        self.assertEqual(0, process.end())
        with sqlite3.connect(self.state / "attachd.sqlite") as database:
            rows = database.execute("SELECT id, status FROM volumes").fetchall()
        self.assertEqual([(volume["id"], "available")], rows)

    def test_all_in_one_on_second_interrupt_exits_at_once(self):
        process, _api = self.slow(delay=0)
        self.assertEqual(0, process.end())
        process = self.begin(delay=900)  # its backend is still known to be up
        Client(f"{process.url}/v3").request_json("POST", "/volumes", {"volume": {"size": 1}})
        process.send(signal.SIGINT)
        # Until it has seen the first one, a second one is the same.
        wait_until(lambda: not self.interrupted(process), interval=0.5)
        self.assertEqual(130, process.wait())

    def interrupted(self, process):
        """Send an interrupt, unless the process has ended; return whether it was running."""
        if running := process.running:
            process.send(signal.SIGINT)
        return running


@full_only("deployments")
class RefusalTest(unittest.TestCase):
    """Tests of errors at start, which are one line each."""

    def setUp(self):
        super().setUp()
        self.state = lifetime.temp_dir(self) / "state"

    def refused(self, *arguments):
        code, output, errors = run("--port=0", f"--state-path={self.state}", *arguments)
        self.assertEqual((1, ""), (code, output), errors)
        self.assertEqual(1, errors.count("\n"), errors)
        self.assertTrue(errors.startswith("attachd-all-in-one: "), errors)
        return errors

    def test_all_in_one_with_state_directory_in_use_exits_with_message(self):
        process = AllInOne(self, self.state)
        said = self.refused()
        self.assertIn(f"{self.state} is in use", said)
        self.assertIn(f"process {process.pid}\n", said)
        self.assertEqual(
            200, requests.get(f"{process.url}/v3/volumes", timeout=TIMEOUT).status_code
        )

    def test_all_in_one_with_port_in_use_exits_with_message(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            said = self.refused(f"--port={port}")
        self.assertIn(f"127.0.0.1 port {port}: Address already in use", said)

    def test_all_in_one_with_foreign_address_exits_with_message(self):
        self.assertIn("192.0.2.1", self.refused("--host=192.0.2.1"))

    def test_all_in_one_with_uncreatable_directory_exits_with_message(self):
        self.state.write_text("a file")
        self.assertIn(str(self.state), self.refused())

    def test_all_in_one_with_ambiguous_directory_name_exits_with_message(self):
        for name in ("$HOME", "what?"):
            self.assertIn(name, self.refused(f"--state-path={self.state / name}"))

    def test_all_in_one_with_read_only_directory_exits_with_message(self):
        if os.geteuid() == 0:
            self.state = Path("/proc/self/attachd")
        else:
            self.state.mkdir(mode=0o500)
        self.assertIn(str(self.state), self.refused())

    def test_all_in_one_with_missing_configuration_file_exits_with_message(self):
        missing = str(self.state) + ".conf"
        self.assertIn(missing, self.refused(f"--config-file={missing}"))

    def test_all_in_one_with_unknown_driver_exits_with_message(self):
        own = self.state.parent / "own.conf"
        own.write_text("[file]\ndriver = tape\n")
        self.assertIn("tape", self.refused(f"--config-file={own}"))


@full_only("deployments")
class AddressTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.state = lifetime.temp_dir(self) / "state"

    def test_all_in_one_prints_that_authentication_is_off(self):
        process = AllInOne(self, self.state)
        self.assertIn("Authentication is off", process.output)
        self.assertNotIn("WARNING", process.output)
        self.assertTrue(process.url.startswith("http://127.0.0.1:"))

    def test_all_in_one_on_public_address_warns(self):
        process = AllInOne(self, self.state, "--host=0.0.0.0")
        self.assertIn("WARNING: 0.0.0.0 is not a loopback address", process.output)
        self.assertEqual(
            200, requests.get(f"{process.url}/v3/volumes", timeout=TIMEOUT).status_code
        )

    def test_all_in_one_serves_ipv6(self):
        if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
            self.skipTest("this machine has no IPv6")
        process = AllInOne(self, self.state, "--host=::1")
        self.assertIn("http://[::1]:", process.url)
        self.assertNotIn("WARNING", process.output)
        self.assertEqual(
            200, requests.get(f"{process.url}/v3/volumes", timeout=TIMEOUT).status_code
        )

    def test_all_in_one_keeps_a_connection_for_hundreds_of_requests(self):
        process = AllInOne(self, self.state)
        with requests.Session() as session:
            for _ in range(300):
                answer = session.get(f"{process.url}/v3/volumes/detail", timeout=TIMEOUT)
                self.assertEqual(200, answer.status_code)
            pools = session.get_adapter(process.url).poolmanager.pools
            (pool,) = [pools[key] for key in pools.keys()]  # noqa: SIM118  not a mapping
            self.assertEqual(1, pool.num_connections)


class ProcessorTest(unittest.TestCase):
    def test_all_in_one_binds_all_threads_to_one_processor(self):
        process = AllInOne(self, lifetime.temp_dir(self) / "state")
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        self.assertGreater(len(threads), 3)
        allowed = {frozenset(os.sched_getaffinity(int(thread.name))) for thread in threads}
        self.assertEqual([1], [len(item) for item in allowed])
