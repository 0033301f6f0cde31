# SPDX-License-Identifier: Apache-2.0
"""Tests of outages of the database, the message queue or a backend.

Processes and servers are real; a proxy disconnects them, or a signal stops them.
"""

from concurrent import futures
from pathlib import Path
import re
import resource
import threading

import requests
import sqlalchemy as sa
import testtools

from attachd.tests.fixtures import deployments, processes
from attachd.tests.fixtures.deployments import API_THREADS
from attachd.tests.fixtures.tgtd import Tgtd
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

# Long enough for a tgtd that is only slow, and shorter than the API waits.
TGT_TIMEOUT = 15

ONE_GIB = {"volume": {"size": 1}}
OK, ACCEPTED = 200, 202


@full_only("outages")
class Case(testtools.TestCase):
    def assert_unavailable(self, answer, says):
        """Check for a 503; without timeouts there would be no response."""
        self.assertEqual(503, answer.status, answer)
        self.assertRegex(answer.message, says)
        self.assertEqual("5", answer.headers["retry-after"])

    def assert_threads_are_as_before(self, deployment, before):
        """All of them answer, and there are not more."""
        answers = deployment.request_all([("GET", "/volumes")] * 2 * API_THREADS)
        self.assertEqual({200}, {answer.status for answer in answers})
        wait_until(lambda: deployment.thread_count() <= before, deployment.thread_count)

    def warm_up(self, deployment, volume):
        """Have all threads and connections made that there will be."""
        # More than once: those who ask may be so slow that one thread answers several of them.
        for path in (f"/volumes/{volume}", "/volumes") * 3:
            deployment.request_all([("GET", path)] * 2 * API_THREADS)
        deployment.attach_and_detach(volume)
        deployment.request_all(
            [("PUT", "/attachments/x", deployments.connector_body("x"))] * API_THREADS
        )
        # Each thread may come to keep a connection to the queue, which has a thread of its own.
        return deployment.thread_count() + API_THREADS


class DatabaseTest(Case):
    """MariaDB; StartTest has PostgreSQL, and test_database_outages all drivers of both."""

    def test_database_outage_returns_503_and_ends_by_itself(self):
        deployment = deployments.ProxiedDeployment(self, "mariadb")
        deployment.start()
        volume = deployment.create_volume()
        threads = self.warm_up(deployment, volume)
        proxy = deployment.database_proxy
        for away in (proxy.refuse, proxy.freeze):
            attachment = deployment.reserve(volume)
            away()
            answers = deployment.request_all(
                [
                    ("GET", "/volumes"),
                    ("POST", "/volumes", {"volume": {"size": 1}}),
                    ("PUT", f"/attachments/{attachment}", deployments.connector_body("one")),
                    ("DELETE", f"/attachments/{attachment}"),
                ]
            )
            for answer in answers:
                self.assert_unavailable(answer, "^The database does not answer. Try")
            proxy.pass_on()
            wait_until(lambda: deployment.request("GET", "/volumes").status == 200)
            self.assertEqual("reserved", deployment.volume_status(volume))
            wait_until(lambda item=attachment: deployment.connect(item).status == 200)
            self.assertEqual(
                200, deployment.request("DELETE", f"/attachments/{attachment}").status
            )
            self.assert_threads_are_as_before(deployment, threads)
        for _ in range(3):
            proxy.cut()
            deployment.attach_and_detach(volume)


class QueueTest(Case):
    def setUp(self):
        super().setUp()
        self.deployment = deployments.ProxiedDeployment(self, "mariadb")
        self.deployment.start()

    def test_message_queue_outage_is_reported_and_ends_by_itself(self):
        deployment, proxy = self.deployment, self.deployment.queue_proxy
        volume, other = deployment.create_volume(), deployment.create_volume()
        threads = self.warm_up(deployment, volume)
        for away in (proxy.refuse, proxy.freeze):
            attachment = deployment.reserve(volume)
            away()
            connected, attached, created = deployment.request_all(
                [
                    ("PUT", f"/attachments/{attachment}", deployments.connector_body("one")),
                    ("POST", "/attachments", deployments.reservation_body(other)),
                    ("POST", "/volumes", {"volume": {"size": 1, "name": away.__name__}}),
                ]
            )
            self.assert_unavailable(connected, "message queue does not answer")
            # A reservation needs the database alone.
            self.assertEqual(200, attached.status, attached)
            reserved = attached.body["attachment"]["id"]
            self.assertEqual(200, deployment.request("DELETE", f"/attachments/{reserved}").status)
            proxy.pass_on()
            self.assert_works_again(attachment, volume)
            self.assert_true(created, away.__name__)
            self.assert_threads_are_as_before(deployment, threads)
        for _ in range(2):
            proxy.cut()
            self.assert_works_again(deployment.reserve(volume), volume)

    def assert_works_again(self, attachment, volume):
        """Repeat the call until it is answered; then everything works."""
        deployment = self.deployment
        wait_until(lambda: deployment.connect(attachment).status == 200)
        self.assertEqual(200, deployment.request("DELETE", f"/attachments/{attachment}").status)
        deployment.attach_and_detach(volume)

    def assert_true(self, created, name):
        """Check a volume after its response: it is in error, or a manager has found its row."""
        (left,) = self.deployment.get(f"/v3/volumes?name={name}")["volumes"]
        if created.status == 202:
            wait_until(lambda: self.deployment.volume_status(left["id"]) == "available")
        else:
            says = f"Volume {left['id']} was not created and is in error: .* Delete it"
            self.assert_unavailable(created, says)
            self.assertEqual("error", self.deployment.volume_status(left["id"]))
        wait_until(lambda: self.is_deleted(left["id"]))

    def is_deleted(self, volume):
        return self.deployment.request("DELETE", f"/volumes/{volume}").status == 404


class BackendTest(Case):
    """One backend hangs: its daemon is stopped by a signal.  The other one is a folder."""

    def test_backend_outage_is_reported_and_does_not_stop_other_backends(self):
        deployment = self.deployed()
        fast, slow = (
            deployment.create_volume(volume_type="fast"),
            deployment.create_volume(volume_type="slow"),
        )
        volumes = [
            deployment.create_volume(volume_type="slow") for _ in range(2 * API_THREADS - 1)
        ]
        hung = [deployment.reserve(item) for item in [slow, *volumes]]
        self.tgtd.pause()
        over = threading.Event()

        def insist(identity):
            """Ask again and again, so that there is never a thread to spare."""
            answers = [deployment.connect(identity)]
            while not over.is_set():
                answers.append(deployment.connect(identity))
            return [(identity, item) for item in answers]

        with futures.ThreadPoolExecutor(len(hung)) as pool:
            insisting = [pool.submit(insist, item) for item in hung]
            try:
                for _ in range(3):
                    deployment.attach_and_detach(fast)
            finally:
                over.set()
            answers = [one for item in insisting for one in item.result()]
        for identity, answer in answers:
            self.assert_names_what_to_do(deployment, identity, answer)
        self.tgtd.go_on()
        for item in hung:
            wait_until(lambda item=item: deployment.connect(item).status == 200)
        for item in hung:
            self.assertEqual(200, deployment.request("DELETE", f"/attachments/{item}").status)
        self.assertEqual([], self.tgtd.accounts())

    def deployed(self):
        self.tgtd = self.useFixture(Tgtd(self))
        options = "\n".join(f"{name} = {value}" for name, value in self.tgtd.options.items())
        settings = f"[tgt]\ndriver = tgt\ntgt_timeout = {TGT_TIMEOUT}\n{options}\n"
        # More threads than calls, as a real API has more than are about to wait.
        deployment = deployments.ProxiedDeployment(
            self, "mariadb", "file, tgt", settings, threads=24
        )
        deployment.start()
        wait_until(
            lambda: (
                [service["state"] for service in deployment.get("/v3/os-services")["services"]]
                == ["up", "up"]
            )
        )
        for name, backend in (("fast", "file"), ("slow", "tgt")):
            wanted = {"name": name, "extra_specs": {"volume_backend_name": backend}}
            answer = deployment.request("POST", "/types", {"volume_type": wanted})
            self.assertEqual(200, answer.status, answer)
        return deployment

    def assert_names_what_to_do(self, deployment, identity, answer):
        """Check the message: the error, its duration, and the remedy."""
        if identity in answer.message and answer.status == 503:
            says = f"{identity} could not be connected: .* not answer.*try again, or delete it"
            self.assert_unavailable(answer, says)
        elif answer.status == 504:
            says = f"did not answer in time.* check attachment {identity}"
            self.assertRegex(answer.message, says)
            self.assertEqual("5", answer.headers["retry-after"])
        else:
            self.assert_unavailable(answer, "later|repeat|down")
        shown = deployment.get(f"/v3/attachments/{identity}")["attachment"]
        self.assertIn(shown["status"], {"error_attaching", "attaching", "reserved"})


class StorageDaemonTest(Case):
    """The manager does not notice by itself: it looks at its backend once an hour."""

    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(Tgtd(self))
        self.deployment = deployments.Deployment(self, "mariadb", "tgt", workers=1)
        self.deployment.configure(f"[manager]\nreport_interval = 3600\n{self.tgtd.configuration}")
        self.deployment.start()

    def request(self, *call):
        return self.deployment.api.request(*call)

    def succeed(self, *call):
        return self.deployment.api.request_json(*call)

    def create_volume(self):
        made = self.succeed("POST", "/volumes", {"volume": {"size": 1}})["volume"]["id"]
        wait_until(
            lambda: self.succeed("GET", f"/volumes/{made}")["volume"]["status"] == "available"
        )
        return made

    def reserve(self, volume):
        body = deployments.reservation_body(volume)
        return self.succeed("POST", "/attachments", body)["attachment"]["id"]

    def test_calls_while_daemon_is_away_are_503_and_succeed_later(self):
        connected, reserved = (self.reserve(self.create_volume()) for _ in range(2))
        body = deployments.connector_body("one")
        self.succeed("PUT", f"/attachments/{connected}", body)
        first, second = (f"/volumes/{self.create_volume()}/action" for _ in range(2))
        connection = body["attachment"]
        self.succeed("POST", first, {"os-initialize_connection": connection})
        self.tgtd.stop()
        calls = [
            ("PUT", f"/attachments/{reserved}", body),
            ("DELETE", f"/attachments/{connected}"),
            ("POST", second, {"os-initialize_connection": connection}),
            ("POST", first, {"os-terminate_connection": connection}),
        ]
        for call in calls:
            self.assert_unavailable(self.request(*call), "tgtd.* [Tt]ry again|to try again")
        self.tgtd.restart()
        for call in calls:
            wait_until(lambda call=call: self.request(*call).status in {200, 202, 404})

    def test_call_of_manager_that_was_removed_meanwhile_is_503(self):
        attachment = self.reserve(self.create_volume())
        engine = sa.create_engine(self.deployment.database)
        self.addCleanup(engine.dispose)

        def members():
            with engine.connect() as connection:
                return {row.id for row in connection.execute(sa.text("SELECT id FROM members"))}

        self.tgtd.pause()
        with futures.ThreadPoolExecutor(1) as pool:
            path = f"/attachments/{attachment}"
            answer = pool.submit(self.request, "PUT", path, deployments.connector_body("one"))
            self.addCleanup(self.tgtd.go_on)
            wait_until(lambda: self.succeed("GET", path)["attachment"]["status"] == "attaching")
            (former,) = members()
            with engine.begin() as connection:
                connection.execute(sa.text("DELETE FROM members"))
            wait_until(lambda: members() - {former})  # It has joined again.
            self.tgtd.go_on()
        self.assert_unavailable(answer.result(), "removed from the group.* Repeat the call")


class DescriptorsTest(Case):
    """The manager may open no more files; a full state path is reported in the same way."""

    def setUp(self):
        super().setUp()
        self.deployment = deployments.ProxiedDeployment(
            self, "mariadb", settings="[manager]\nreport_interval = 1\n"
        )
        manager = self.deployment.start_manager()
        self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        self.pids = [manager.pid, *processes.child_pids(manager.pid)]

    def limit(self, free):
        """Let the manager open some more files than it has open."""
        for pid in self.pids:
            present = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            _soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (present + free, hard))

    def test_manager_without_descriptors_is_reported_and_works_again(self):
        deployment = self.deployment
        volume = deployment.create_volume()
        attachment = deployment.reserve(volume)
        self.limit(0)
        said = "Backend .* is down: The manager cannot use its lock files: Too many open files"
        wait_until(lambda: re.search(said, deployment.connect(attachment).message or ""))
        self.assert_unavailable(deployment.connect(attachment), said)
        wait_until(lambda: deployment.request("POST", "/volumes", ONE_GIB).status != ACCEPTED)
        url = f"{deployment.url}/healthcheck?detailed"
        checks = requests.get(url, timeout=TIMEOUT).json()["checks"]
        self.assertIn("failed", [check["status"] for check in checks])
        self.limit(256)
        wait_until(lambda: deployment.connect(attachment).status == OK)
        wait_until(lambda: not deployment.get("/v3/volumes?status=creating")["volumes"])


class StartTest(Case):
    def test_processes_started_before_their_servers_work_later(self):
        deployment = deployments.ProxiedDeployment(self, "postgresql")
        deployment.database_proxy.refuse()
        deployment.queue_proxy.refuse()
        deployment.start_manager_without_waiting()
        deployment.start_gunicorn()
        self.assert_unavailable(deployment.request("GET", "/volumes"), "database")
        deployment.database_proxy.pass_on()
        wait_until(lambda: deployment.request("GET", "/volumes").status == 200)
        deployment.queue_proxy.pass_on()
        deployment.wait_until_served()
        deployment.attach_and_detach(deployment.create_volume())
