# SPDX-License-Identifier: Apache-2.0
"""Tests of attachd-manage audit beside managers that work or were killed, with a real tgtd."""

import contextlib
import json
import secrets
import threading

import sqlalchemy as sa
import testtools

from attachd.db import models
from attachd.manager.audit.rules import MEANINGS, Kind
from attachd.tests.fixtures import (
    consistency,
    deployments,
    http_client,
    initiators,
    processes,
    tgtd,
)
from attachd.tests.functional import attach_cycles
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

TYPE = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
AGREED, DIFFERENT, NOT_COMPARED, ALL_REPAIRED = range(4)
HOSTS = 8
CYCLES = 24
LOGINS = 4
AUDITS = 2


@full_only("deployments")
class AuditCommandTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.deployment = deployments.Deployment(self, "mariadb", backend="tgt", workers=1)
        configuration = self.deployment.folder / "attachd.conf"
        with configuration.open("a", encoding="utf-8") as file:
            file.write(settings("tgt", self.tgtd.options))
        self._command = [
            processes.script("attachd-manage"), f"--config-file={configuration}", "audit"
        ]  # fmt: skip
        self.manager = self.start_manager()
        self.deployment.start_uwsgi().show_in_failures(self)
        self.deployment.wait_until_served()
        self.api = http_client.Client(f"{self.deployment.url}/v3")
        self.host = self.useFixture(initiators.IscsiHost(self, "a"))

    def start_manager(self):
        manager = self.deployment.start_manager()
        manager.show_in_failures(self)
        return manager

    def assert_agreed(self, result):
        """Check that an audit has found no difference, and says what it has compared."""
        code, printed, error = result
        self.assertEqual((AGREED, ""), (code, error))
        self.assertRegex(printed, r"\A1 back end, \d+ exports? compared, no difference\n\Z")

    def audit(self, *arguments):
        """Run an audit; return its exit code, what it printed and what it complained of."""
        done = processes.run(
            [*self._command, *arguments],
            env=processes.environment(HOME=str(self.deployment.folder)),
        )
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def kinds(self, *arguments):
        code, printed, _complaint = self.audit("--format=json", *arguments)
        (backend,) = json.loads(printed)
        found = [
            (difference["kind"], difference["outcome"]) for difference in backend["differences"]
        ]
        return code, sorted(found, key=str)

    def sql(self, statement):
        engine = sa.create_engine(self.deployment.database, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.execute(statement)

    def attach(self, volume):
        wanted = {"volume_uuid": volume, "connector": self.host.connector}
        made = self.api.request_json("POST", "/attachments", {"attachment": wanted})["attachment"]
        data = made["connection_info"]
        return made["id"], {"driver_volume_type": data["driver_volume_type"], "data": data}

    def differences(self):
        return consistency.compare_with_tgt(self.deployment.database, self.tgtd)

    def test_audit_command_under_load_reports_no_differences(self):
        self.api.request_json("POST", "/types", {"volume_type": TYPE})
        shared = self.api.create_volume(volume_type=TYPE["name"])
        clock = attach_cycles.Durations()
        workers = [
            attach_cycles.Worker(
                self.api,
                shared if number % 2 else self.api.create_volume(),
                self.useFixture(initiators.IscsiHost(self, f"host-{number}")),
                clock,
            )
            for number in range(HOSTS)
        ]
        trouble, done = [], threading.Event()

        def work():
            while not (done.is_set() or trouble):
                trouble.extend(attach_cycles.run(workers, CYCLES, LOGINS))

        load = threading.Thread(target=work)
        load.start()
        try:
            seen = [self.audit(*["--repair"] * (number % 2)) for number in range(AUDITS)]
        finally:
            done.set()
            load.join()
        self.assertEqual([], trouble)
        self.assertEqual(AUDITS, len(seen))
        for result in seen:
            self.assert_agreed(result)
        self.assertEqual([], self.differences())

    def test_audit_command_reports_unfinished_work_of_a_killed_manager(self):
        volume = self.api.create_volume()
        self.tgtd.pause()
        request = ("POST", "/attachments", {
            "attachment": {"volume_uuid": volume, "connector": self.host.connector}
        })  # fmt: skip

        def ask():
            with contextlib.suppress(OSError):
                self.api.request(*request)

        # It is not answered before the API has waited for the dead manager long enough.
        threading.Thread(target=ask, daemon=True).start()
        wait_until(lambda: consistency.find_unfinished(self.deployment.database))
        self.manager.kill()
        self.tgtd.go_on()
        self.assertEqual((DIFFERENT, [("interrupted", None)]), self.kinds())
        kept = f"Kept: {MEANINGS[Kind.INTERRUPTED].kept}"
        self.assertEqual((DIFFERENT, [("interrupted", kept)]), self.kinds("--repair"))
        self.start_manager()
        left = consistency.wait_until_consistent(
            lambda: [*consistency.find_unfinished(self.deployment.database), *self.differences()]
        )
        self.assertEqual([], left)
        self.assert_agreed(self.audit())

    def test_audit_command_repairs_differences_and_keeps_data(self):
        volume, other = self.api.create_volume(), self.api.create_volume()
        data = secrets.token_bytes(64 * 1024)
        _attachment, info = self.attach(volume)
        self.host.write(info, 2**20, data)
        lost, lost_info = self.attach(other)
        self.host.write(lost_info, 2**20, data)
        self.manager.kill()
        self.sql(sa.delete(models.attachments).where(models.attachments.c.id == lost))
        manager = self.start_manager()
        target = next(item for item in self.tgtd.targets() if item.name.endswith(volume))
        self.tgtd.adm("--op", "delete", "--mode", "target", "--force", "--tid", f"{target.tid}")

        found = [("missing-export", None), ("orphan-export", None), ("status", None)]
        self.assertEqual((DIFFERENT, found), self.kinds())
        code, printed, _complaint = self.audit()
        self.assertEqual(DIFFERENT, code)
        for text in (other, volume, "orphan-export", "found:", "cause:", "action:", "Revoke it"):
            self.assertIn(text, printed)
        self.assertNotIn("outcome:", printed)
        repaired = [(kind, "repaired") for kind, _none in found]
        self.assertEqual((ALL_REPAIRED, repaired), self.kinds("--repair", "--backend=tgt"))
        self.assert_agreed(self.audit())
        self.assertEqual([], self.differences())
        self.assertEqual(data, self.host.read(info, 2**20, len(data)))
        self.assertEqual("available", self.api.volume(other)["status"])
        _again, info = self.attach(other)
        self.assertEqual(data, self.host.read(info, 2**20, len(data)))
        self.assertTrue(manager.running)

    def test_audit_command_with_backend_down_or_unknown_does_not_report_success(self):
        self.tgtd.stop()
        code, printed, complaint = self.audit()
        self.assertEqual((NOT_COMPARED, ""), (code, printed))
        self.assertIn("Backend tgt is down", complaint)
        code, _printed, complaint = self.audit("--backend", "nonesuch")
        self.assertEqual(NOT_COMPARED, code)
        self.assertIn("nonesuch", complaint)
        with (self.deployment.folder / "attachd.conf").open("a", encoding="utf-8") as file:
            file.write("[database]\nconnection = mysql+pymysql://root@127.0.0.1:1/x\n")
        code, _printed, complaint = self.audit()
        self.assertEqual(NOT_COMPARED, code)
        self.assertIn("127.0.0.1:1", complaint)
