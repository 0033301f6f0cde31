# SPDX-License-Identifier: Apache-2.0
"""Tests of two releases of the code on RabbitMQ and one migrated database."""

import contextlib
import datetime
import unittest
import uuid

import sqlalchemy as sa

from attachd.db import models
from attachd.tests.fixtures import releases, sdk
from attachd.tests.fixtures.deployments import Deployment
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

CONNECTOR = {"host": "one", "initiator": "iqn.2000-01.org.example:one"}
OF_UPGRADES = ("Managers", "Upgrade Level")
"""The checks that concern two releases side by side."""
PIN = f"[upgrade_levels]\nattachd_manager = {releases.RPC_VERSION}\n"


class UpgradeCase:
    """A deployment in the middle of an upgrade; a subclass names the database."""

    def setUp(self):
        super().setUp()
        self.former, self.next = releases.make_former(self), releases.make_next(self)
        self.deployment = Deployment(self, self.database)
        self.deployment.use_code(self.next)

    @contextlib.contextmanager
    def of_the_former_release(self):
        """Start there what is started in here."""
        self.deployment.use_code(self.former)
        yield
        self.deployment.use_code(self.next)

    def storage(self):
        return sdk.block_storage(self, self.deployment.url)

    def act(self, volume, name, **values):
        path = f"/volumes/{volume.id}/action"
        return self.deployment.api.request_json("POST", path, {name: values or None})

    def attach(self, storage, volume, connector=CONNECTOR, **values):
        attachment = storage.create_attachment(volume.id, connector=connector, **values)
        storage.complete_attachment(attachment)
        return attachment

    def make_volume(self, storage, **values):
        volume = storage.create_volume(size=1, **values)
        return storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)

    def cycle(self):
        """Do what stock clients do, by the new calls and by the older ones."""
        storage = self.storage()
        volume = self.make_volume(storage)
        server = str(uuid.uuid4())
        first = self.attach(storage, volume, instance=server)
        self.assertEqual("in-use", storage.get_volume(volume.id).status)
        # As while a server moves: the response to a detach lists what remains.
        second = self.attach(storage, volume, {"host": "two"}, instance=server)
        answer = self.deployment.api.request("DELETE", f"/attachments/{first.id}")
        self.assertEqual(200, answer.status, answer)
        self.assertEqual([second.id], [row["id"] for row in answer.body["attachments"]])
        storage.delete_attachment(second)
        self.assertEqual("available", storage.get_volume(volume.id).status)
        self.older_calls(volume)
        self.assertEqual("available", storage.get_volume(volume.id).status)
        copy = self.make_volume(storage, source_volume_id=volume.id)
        storage.extend_volume(copy, 2)
        wait_until(lambda: storage.get_volume(copy.id).size == 2)
        for item in (copy, volume):
            storage.delete_volume(item)
            storage.wait_for_delete(item, interval=0.1, wait=TIMEOUT)

    def older_calls(self, volume):
        self.act(volume, "os-reserve")
        opened = self.act(volume, "os-initialize_connection", connector=CONNECTOR)
        self.assertIn("connection_info", opened)
        self.act(
            volume,
            "os-attach",
            instance_uuid=str(uuid.uuid4()),
            mountpoint="/dev/vdb",
            mode="rw",
        )
        self.act(volume, "os-begin_detaching")
        self.act(volume, "os-terminate_connection", connector=CONNECTOR)
        self.act(volume, "os-detach")

    def check_release(self, process, *, former):
        """Check that a process is of the former release, or of the next one."""
        mark = releases.FORMER if former else releases.NEXT
        self.assertIn(mark, process.output)

    def ended(self, *started):
        for item in started:
            self.assertEqual(0, item.end())
            self.assertNotIn("Traceback", item.output)

    def wait_until_ready(self):
        """Wait until the upgrade is complete according to the managers' reports.

        Their older versions count until none has reported them for ``service_down_time``, which is
        long in tests.
        """
        engine = sa.create_engine(self.deployment.database)
        with engine.begin() as connection:
            long_ago = datetime.datetime(2000, 1, 1)  # noqa: DTZ001  stored without a zone
            connection.execute(sa.update(models.services).values(versioned_at=long_ago))
        engine.dispose()
        wait_until(lambda: not self.not_ready(), self.not_ready)

    def not_ready(self):
        checks = self.deployment.upgrade_checks()
        return [of_upgrade for of_upgrade in OF_UPGRADES if checks[of_upgrade]]


class ManagersFirstCase(UpgradeCase):
    def test_rolling_upgrade_of_managers_before_api_works(self):
        with self.of_the_former_release():
            old_manager = self.deployment.start_manager()
            old_api = self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        storage = self.storage()
        kept = self.make_volume(storage)
        attachment = self.attach(storage, kept)
        self.check_release(old_manager, former=True)
        self.check_release(old_api, former=True)
        self.assertEqual(1, self.deployment.upgrade_checks()["Managers"])
        self.ended(old_manager)
        manager = self.deployment.start_manager()
        self.cycle()
        self.wait_until_ready()
        self.ended(old_api)
        api = self.deployment.start_gunicorn()
        self.check_release(manager, former=False)
        self.check_release(api, former=False)
        self.cycle()
        # What was attached before the upgrade is detached after it.
        storage = self.storage()
        self.assertEqual("in-use", storage.get_volume(kept.id).status)
        storage.delete_attachment(attachment.id)
        self.assertEqual("available", storage.get_volume(kept.id).status)
        self.ended(api, manager)


@full_only("upgrade")
class MariaDBTest(ManagersFirstCase, unittest.TestCase):
    database = "mariadb"


@full_only("upgrade")
class PostgreSQLTest(ManagersFirstCase, unittest.TestCase):
    database = "postgresql"


@full_only("upgrade")
class ApiFirstTest(UpgradeCase, unittest.TestCase):
    database = "mariadb"

    def test_rolling_upgrade_of_pinned_api_before_managers_works(self):
        with self.of_the_former_release():
            old_manager = self.deployment.start_manager()
            old_api = self.deployment.start_gunicorn()
        self.deployment.wait_until_served()
        volume = self.make_volume(self.storage())
        self.ended(old_api)
        api = self.deployment.start_gunicorn()
        attachment = self.storage().create_attachment(volume.id, connector={})
        # The manager cannot compare exports yet.
        body = {"os-reset_status": {"attach_status": "detached"}}
        answer = self.deployment.api.request("POST", f"/volumes/{volume.id}/action", body)
        self.assertEqual(503, answer.status, answer)
        self.assertIn("is being upgraded", answer.message)
        self.assertEqual("reserved", self.storage().get_attachment(attachment.id).status)
        self.ended(api)
        self.deployment.configure(PIN)
        api = self.deployment.start_gunicorn()
        storage = self.storage()
        storage.update_attachment(attachment, connector=CONNECTOR)
        storage.complete_attachment(attachment)
        self.cycle()
        self.assertEqual(1, self.deployment.upgrade_checks()["Upgrade Level"])
        self.ended(old_manager)
        manager = self.deployment.start_manager()
        self.cycle()
        self.ended(api)
        self.deployment.configure("[upgrade_levels]\nattachd_manager = auto\n")
        api = self.deployment.start_gunicorn()
        self.wait_until_ready()
        storage = self.storage()
        storage.delete_attachment(attachment.id)
        self.assertEqual("available", storage.get_volume(volume.id).status)
        self.cycle()
        self.ended(api, manager)
