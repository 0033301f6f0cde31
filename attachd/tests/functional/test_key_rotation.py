# SPDX-License-Identifier: Apache-2.0
"""Tests of rotating the encryption key beside running services, killed and repeated."""

import json
import threading
import uuid

import sqlalchemy as sa

from attachd.db.secrets import key_file
from attachd.tests.fixtures import http_client, key_files, processes
from attachd.tests.functional.test_secret_encryption import PROJECT, Case
from attachd.tests.wait import wait_until


class RotationTest(Case):
    ROWS = 400
    THREADS = 2

    def setUp(self):
        super().setUp()
        self.deploy("file", workers=1)
        self.deployment.configure(f"[secrets]\nkey_file = {self.keys}\n")
        self.start()
        self.deployment.wait_until_served()
        self.api = http_client.Client(f"{self.deployment.url}/v3")
        self.stop = threading.Event()
        self.trouble, self.cycles = [], [0] * self.THREADS

    def manage(self, *arguments, **settings):
        return self.deployment.run(
            "attachd-manage", self.deployment.config_argument, "key", *arguments, **settings
        )

    def add_rows(self):
        """Insert attachments that were stored before there was a key; return their ids, sorted."""
        values = {"id": str(uuid.uuid4()), "now": "2026-01-01 00:00:00", "project": PROJECT}
        self.sql(
            "INSERT INTO volumes (id, project_id, size_gib, state, status, attach_status,"
            " pending_detaches, multiattach, bootable, provider, admin_metadata, created_at,"
            " lease_generation) VALUES (:id, :project, 1, 'ready', 'in-use', 'attached', 0, 1,"
            " 0, '{}', '{}', :now, 0)",
            **values,
        )
        info = json.dumps({"driver_volume_type": "iscsi", "data": {"auth_password": "p" * 32}})
        ids = sorted(str(uuid.uuid4()) for _ in range(self.ROWS))
        with self.engine.begin() as connection:
            connection.execute(
                sa.text(
                    "INSERT INTO attachments (id, volume_id, project_id, kind, state, connector,"
                    " connection_info, secret, generation, created_at) VALUES (:id, :volume,"
                    " :project, 'attachment', 'attached', '{}', :info, :secret, 0, :now)"
                ),
                [
                    {**values, "id": id_, "volume": values["id"], "info": info,
                     "secret": "s" * 32}
                    for id_ in ids
                ],
            )  # fmt: skip
        return ids

    def cycle(self, number):
        volume = self.api.request_json("POST", "/volumes", {"volume": {"size": 1}})["volume"]["id"]
        self.wait_for(volume)
        while not self.stop.is_set():
            try:
                body = {"attachment": {"volume_uuid": volume, "connector": {"host": f"h{number}"}}}
                made = self.api.request_json("POST", "/attachments", body)["attachment"]
                path = f"/attachments/{made['id']}"
                shown = self.api.request_json("GET", path)["attachment"]
                if shown["connection_info"] != made["connection_info"]:
                    self.trouble.append((made, shown))
                self.api.request_json("DELETE", path)
                self.cycles[number] += 1
            except Exception as error:  # noqa: BLE001  the test looks at it
                self.trouble.append(repr(error))
                return

    def wait_for(self, volume):
        self.api.wait_for(volume, "available")

    def count_encrypted(self, name):
        return self.sql(
            "SELECT COUNT(*) FROM attachments WHERE secret LIKE :like",
            like=f"encrypted:2:{name}:%",
        )[0][0]

    def change_key(self):
        name = key_file.add(str(self.keys))
        key_file.promote(str(self.keys), name)
        return name

    def wait_for_cycles(self):
        """Wait until each of those who attach has done it some times more."""
        wanted = [cycle + 2 for cycle in self.cycles]
        wait_until(
            lambda: (
                self.trouble
                or all(now >= item for now, item in zip(self.cycles, wanted, strict=True))
            ),
            lambda: (self.cycles, wanted),
        )
        self.assertEqual([], self.trouble)

    def test_key_rotation_does_not_interrupt_services(self):
        ids = self.add_rows()
        threads = [threading.Thread(target=self.cycle, args=(n,)) for n in range(self.THREADS)]
        for thread in threads:
            thread.start()
        self.addCleanup(self.stop.set)
        self.wait_for_cycles()
        (one,) = key_files.key_ids(self.keys)
        # Kill one that has begun, and comes no further than to a row.
        command = ["attachd-manage", self.deployment.config_argument, "key", "rotate"]
        lock = sa.text("SELECT id FROM attachments WHERE id = :id FOR UPDATE")
        with self.engine.begin() as connection:
            connection.execute(lock, {"id": ids[self.ROWS // 2]})
            process = processes.Process(
                self, processes.script(command[0]), *command[1:], env=self.deployment.environment
            )
            wait_until(
                lambda: self.count_encrypted(one) >= self.ROWS // 20, lambda: process.output
            )
            process.kill()
        self.assertLess(self.count_encrypted(one), self.ROWS, "it was over before it was killed")
        two = self.change_key()
        self.wait_for_cycles()
        self.manage("rotate", codes=(0, 1))  # 1: one of those who attach came between
        self.wait_for_cycles()
        self.stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual([], self.trouble)
        self.assertEqual("0 values were encrypted again.\n", self.manage("rotate"))
        self.assertEqual(self.ROWS, self.count_encrypted(two))
        self.manage("retire", one)
        self.assertEqual([two], key_files.key_ids(self.keys))
        whole = self.sql("SELECT COUNT(*) FROM attachments WHERE updated_at IS NULL")
        self.assertEqual(self.ROWS, whole[0][0])
        found = self.api.request_json("GET", "/attachments/detail?all_tenants=1&limit=3")[
            "attachments"
        ]
        self.assertEqual(["p" * 32] * 3, [
            item["connection_info"]["auth_password"] for item in found
        ])  # fmt: skip
