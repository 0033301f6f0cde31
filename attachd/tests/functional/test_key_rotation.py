# SPDX-License-Identifier: Apache-2.0
"""Sealing all anew beside services that go on, killed in the middle and begun again."""

import json
import threading
import time
import uuid

import sqlalchemy as sa

from attachd.db import seal_keys
from attachd.tests import keys
from attachd.tests.functional import callers, processes
from attachd.tests.functional.test_sealed_secrets import PROJECT, Case


class RotationTest(Case):
    ROWS = 400
    THREADS = 2

    def setUp(self):
        super().setUp()
        self.deploy("file", workers=1)
        self.deployment.configure(f"[secrets]\nkey_file = {self.keys}\n")
        self.start()
        self.deployment.wait_until_served()
        self.api = callers.Caller(f"{self.deployment.url}/v3", patience=processes.PATIENCE)
        self.stop = threading.Event()
        self.trouble, self.cycles = [], [0] * self.THREADS

    def manage(self, *arguments, **settings):
        return self.deployment.run(
            "attachd-manage", self.deployment._argument, "key", *arguments, **settings
        )

    def add_rows(self):
        """Insert attachments that were stored before there was a key."""
        values = {"id": str(uuid.uuid4()), "now": "2026-01-01 00:00:00", "project": PROJECT}
        self.sql(
            "INSERT INTO volumes (id, project_id, size_gib, state, status, attach_status, leaving,"
            " multiattach, bootable, provider, admin_metadata, created_at, lease_generation)"
            " VALUES (:id, :project, 1, 'ready', 'in-use', 'attached', 0, 1, 0, '{}', '{}', :now,"
            " 0)",
            **values,
        )
        info = json.dumps({"driver_volume_type": "iscsi", "data": {"auth_password": "p" * 32}})
        with self.engine.begin() as connection:
            connection.execute(
                sa.text(
                    "INSERT INTO attachments (id, volume_id, project_id, kind, state, connector,"
                    " connection_info, secret, generation, created_at) VALUES (:id, :volume,"
                    " :project, 'attachment', 'attached', '{}', :info, :secret, 0, :now)"
                ),
                [
                    {**values, "id": str(uuid.uuid4()), "volume": values["id"], "info": info,
                     "secret": "s" * 32}
                    for _ in range(self.ROWS)
                ],
            )  # fmt: skip

    def cycle(self, number):
        volume = self.api.get("POST", "/volumes", {"volume": {"size": 1}})["volume"]["id"]
        self.wait_for(volume)
        while not self.stop.is_set():
            try:
                body = {"attachment": {"volume_uuid": volume, "connector": {"host": f"h{number}"}}}
                made = self.api.get("POST", "/attachments", body)["attachment"]
                path = f"/attachments/{made['id']}"
                shown = self.api.get("GET", path)["attachment"]
                if shown["connection_info"] != made["connection_info"]:
                    self.trouble.append((made, shown))
                self.api.get("DELETE", path)
                self.cycles[number] += 1
            except Exception as error:  # noqa: BLE001  the test looks at it
                self.trouble.append(repr(error))
                return

    def wait_for(self, volume):
        deadline = time.monotonic() + processes.PATIENCE
        while self.api.get("GET", f"/volumes/{volume}")["volume"]["status"] != "available":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def sealed_by(self, name):
        return self.sql(
            "SELECT COUNT(*) FROM attachments WHERE secret LIKE :like", like=f"sealed:1:{name}:%"
        )[0][0]

    def change_key(self):
        name = seal_keys.add(str(self.keys))
        seal_keys.promote(str(self.keys), name)
        return name

    def kill_a_rotation(self, name):
        """Kill one that has begun."""
        command = ["attachd-manage", self.deployment._argument, "key", "rotate"]
        process = processes.Process(
            self, processes.script(command[0]), *command[1:], env=self.deployment._environment
        )
        deadline = time.monotonic() + processes.PATIENCE
        while self.sealed_by(name) < self.ROWS // 20:
            self.assertLess(time.monotonic(), deadline, process.output)
        process.kill()
        self.assertLess(self.sealed_by(name), self.ROWS, "it was over before it was killed")

    def wait_for_cycles(self):
        """Wait until each of those who attach has done it some times more."""
        wanted = [each + 2 for each in self.cycles]
        deadline = time.monotonic() + processes.PATIENCE
        while any(now < each for now, each in zip(self.cycles, wanted, strict=True)):
            self.assertEqual([], self.trouble)
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_services_go_on_while_all_is_sealed_anew(self):
        self.add_rows()
        threads = [threading.Thread(target=self.cycle, args=(n,)) for n in range(self.THREADS)]
        for each in threads:
            each.start()
        self.addCleanup(self.stop.set)
        self.wait_for_cycles()
        (one,) = keys.ids(self.keys)
        self.kill_a_rotation(one)
        two = self.change_key()
        self.wait_for_cycles()
        self.manage("rotate", codes=(0, 1))  # 1: one of those who attach came between
        self.wait_for_cycles()
        self.stop.set()
        for each in threads:
            each.join()
        self.assertEqual([], self.trouble)
        self.assertEqual("0 values were sealed anew.\n", self.manage("rotate"))
        self.assertEqual(self.ROWS, self.sealed_by(two))
        self.manage("retire", one)
        self.assertEqual([two], keys.ids(self.keys))
        whole = self.sql("SELECT COUNT(*) FROM attachments WHERE updated_at IS NULL")
        self.assertEqual(self.ROWS, whole[0][0])
        found = self.api.get("GET", "/attachments/detail?all_tenants=1&limit=3")["attachments"]
        self.assertEqual(["p" * 32] * 3, [
            each["connection_info"]["auth_password"] for each in found
        ])  # fmt: skip
