# SPDX-License-Identifier: Apache-2.0
"""Tests that secrets of real services leak neither to logs, messages nor database dumps.

The response to a connect over HTTP carries a secret.  Nothing else does: no message, no line of
any log, and no copy of the database.
"""

import base64
import contextlib
import json
from pathlib import Path
import secrets
import threading
import uuid

import bcrypt
import kombu
import sqlalchemy as sa
import testtools

from attachd.db.secrets import encryption, key_file
from attachd.tests.fixtures import (
    deployments,
    http_client,
    key_files,
    notification_listener,
    processes,
    rabbitmq,
    requirements,
    tgtd,
)
from attachd.tests.functional.test_backend_data import settings
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until

PROJECT = "a" * 32
CONNECTOR = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}
OTHER = {"host": "compute-2", "initiator": "iqn.2026-01.org.example:compute-2"}
TALKATIVE = (
    "amqp", "kombu", "keystoneauth", "keystonemiddleware", "oslo", "oslo_concurrency",
    "oslo_messaging", "oslo_policy", "oslo_service", "sqlalchemy", "sqlalchemy.engine",
    "sqlalchemy.pool", "stevedore", "taskflow", "urllib3", "attachd",
)  # fmt: skip
LOUD = f"""
[DEFAULT]
debug = true
default_log_levels = {",".join(f"{name}=DEBUG" for name in TALKATIVE)}

[oslo_messaging_notifications]
driver = messagingv2

[api]
auth_strategy = http_basic
http_basic_user_file = {{folder}}/htpasswd
http_basic_roles_file = {{folder}}/roles.yaml

[secrets]
key_file = {{keys}}
"""


class Ear:
    """Receives a copy of all messages, also of answers: RabbitMQ's tracing publishes them."""

    def __init__(self, test, broker):
        self.received = []
        self._stop = threading.Event()
        self._connection = kombu.Connection(broker.replace("rabbit://", "amqp://"))
        channel, queue = self._connection.channel(), f"ear-{uuid.uuid4().hex}"
        channel.queue_declare(queue, exclusive=True, auto_delete=True)
        channel.queue_bind(queue, "amq.rabbitmq.trace", "#")
        # Without a Consumer, which refuses in this process what attachd refuses.
        channel.basic_consume(
            queue, no_ack=True, callback=lambda message: self.received.append(message.body)
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        test.addCleanup(self.end)

    def _listen(self):
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                # Until it looks whether it is to stop; what comes later is drained next time.
                self._connection.drain_events(timeout=0.5)

    def end(self):
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._connection.release()

    @property
    def text(self):
        return "\n".join(
            item if isinstance(item, str) else bytes(item).decode("utf-8", "replace")
            for item in self.received
        )


@full_only("deployments")
class Case(testtools.TestCase):
    """A deployment with a key file."""

    def deploy(self, backend, **options):
        self.deployment = deployments.Deployment(self, "mariadb", backend=backend, **options)
        self.keys = self.deployment.folder / "secrets.keys"
        key_file.create(str(self.keys))
        self.engine = sa.create_engine(self.deployment.database, poolclass=sa.NullPool)

    def start(self):
        self.manager = self.deployment.start_manager()
        self.server = self.deployment.start_uwsgi()
        for item in (self.manager, self.server):
            item.show_in_failures(self)

    def sql(self, statement, **values):
        with self.engine.begin() as connection:
            done = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in done] if done.returns_rows else []


class LeakTest(Case):
    def setUp(self):
        super().setUp()
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.deploy("tgt", workers=1)
        self.password = secrets.token_hex(16)
        folder = self.deployment.folder
        self.guard(folder)
        self.deployment.configure(LOUD.format(folder=folder, keys=self.keys))
        self.deployment.configure(settings("tgt", self.tgtd.options))
        self.secrets = {
            "password": self.password,
            "credentials": base64.b64encode(f"alice:{self.password}".encode()).decode(),
            "database": self.use_database_user(),
            "broker": self.use_broker_user(),
            "key": self.keys.read_text().strip(),
        }
        self.listener = notification_listener.NotificationListener(self, self.broker)
        self.start()
        self.ear = Ear(self, self.broker)
        self.trace()
        headers = {"Authorization": f"Basic {self.secrets['credentials']}"}
        self.api = http_client.Client(f"{self.deployment.url}/v3", headers=headers)

    def guard(self, folder):
        """Make an account that may do everything."""
        hashed = bcrypt.hashpw(self.password.encode(), bcrypt.gensalt(4)).decode()
        (folder / "htpasswd").write_text(f"alice:{hashed}\n")
        (folder / "htpasswd").chmod(0o600)
        roles = f"alice:\n  project: {PROJECT}\n  roles: [admin, member, reader]\n"
        (folder / "roles.yaml").write_text(roles)

    def _replace(self, old, new):
        file = self.deployment.folder / "attachd.conf"
        text = file.read_text()
        self.assertIn(old, text)
        file.write_text(text.replace(old, new))

    def use_database_user(self):
        """Have the services come with a password; return it."""
        user, password = f"test_{secrets.token_hex(6)}", secrets.token_hex(16)
        url = sa.make_url(self.deployment.database)
        self.sql(f"CREATE USER '{user}'@'%' IDENTIFIED BY '{password}'")
        self.addCleanup(self.sql, f"DROP USER '{user}'@'%'")
        self.sql(f"GRANT ALL ON {url.database}.* TO '{user}'@'%'")
        own = url.set(username=user, password=password).render_as_string(hide_password=False)
        self._replace(self.deployment.database, own)
        return password

    def use_broker_user(self):
        """Have the services come to the broker with a password; return it."""
        control = requirements.require_tool(self, "rabbitmqctl")
        text = (self.deployment.folder / "attachd.conf").read_text()
        (old,) = (line.partition(" = ")[2] for line in text.splitlines() if "rabbit://" in line)
        place, _, host = old.rpartition("/")
        user, password = f"test_{secrets.token_hex(6)}", secrets.token_hex(16)
        add = (
            f'U = <<"{user}">>, rabbit_auth_backend_internal:add_user(U, <<"{password}">>, '
            f'<<"test">>), rabbit_auth_backend_internal:set_permissions(U, <<"{host}">>, '
            '<<".*">>, <<".*">>, <<".*">>, <<"test">>).'
        )
        rabbitmq._run(control, "eval", add)
        self.addCleanup(rabbitmq._run, control, "delete_user", user)
        server = place.rpartition("@")[2]
        self.broker = f"rabbit://{user}:{password}@{server}/{host}"
        self._replace(old, self.broker)
        return password

    def trace(self):
        """Have the virtual host publish each message once more."""
        control = requirements.require_tool(self, "rabbitmqctl")
        host = self.broker.rpartition("/")[2]
        rabbitmq._run(control, "eval", f'rabbit_trace:start(<<"{host}">>).')
        self.addCleanup(rabbitmq._run, control, "eval", f'rabbit_trace:stop(<<"{host}">>).')

    def know(self, name, secret):
        self.assertGreaterEqual(len(secret), 32)
        self.secrets[name] = secret

    def attach_as_nova_does(self, volume):
        body = {"attachment": {"volume_uuid": volume, "connector": None}}
        attachment = self.api.request_json("POST", "/attachments", body)["attachment"]
        path = f"/attachments/{attachment['id']}"
        for _repeated in range(2):
            body = {"attachment": {"connector": CONNECTOR}}
            answer = self.api.request_json("PUT", path, body)
            self.know("attachment", answer["attachment"]["connection_info"]["auth_password"])
        self.api.request_json("POST", f"{path}/action", {"os-complete": {}})
        shown = self.api.request_json("GET", path)["attachment"]["connection_info"]
        self.assertEqual(self.secrets["attachment"], shown["auth_password"])
        self.api.request_json("GET", "/attachments/detail")
        return path

    def attach_as_ironic_does(self, volume):
        action = f"/volumes/{volume}/action"
        self.api.request_json("POST", action, {"os-reserve": {}})
        opened = {"os-initialize_connection": {"connector": OTHER}}
        data = self.api.request_json("POST", action, opened)["connection_info"]["data"]
        self.know("connection", data["auth_password"])
        attached = {"instance_uuid": str(uuid.uuid4()), "mountpoint": "/dev/vdb"}
        self.api.request_json("POST", action, {"os-attach": attached})
        return action

    def make_fail(self, volume):
        """Have a connect fail, whose secret is drawn by then."""
        for file in Path(self.tgtd.options["tgt_volumes_dir"]).rglob(f"*{volume}*"):
            file.unlink()
        wanted = {"volume_uuid": volume, "connector": CONNECTOR}
        answer = self.api.request("POST", "/attachments", {"attachment": wanted})
        self.assertEqual(500, answer.status, answer)
        (encrypted,) = self.sql(
            "SELECT secret, id FROM attachments WHERE volume_id = :id", id=volume
        )
        key_files.configure(self, self.keys)
        self.know("failed", encryption.decrypt(encrypted[0], "secret", encrypted[1]))
        self.assertNotIn(self.secrets["failed"], f"{answer}")

    def dump(self):
        """Return all that a backup of the database has."""
        url = sa.make_url(self.deployment.database)
        return processes.check_output(
            [
                requirements.require_tool(self, "mariadb-dump"),
                f"--host={url.host}",
                f"--port={url.port or 3306}",
                f"--user={url.username}",
                f"--password={url.password or ''}",
                "--hex-blob",
                url.database,
            ],
        )

    def test_secrets_are_stored_encrypted_only(self):
        one, two, three = (self.api.create_volume() for _ in range(3))
        path = self.attach_as_nova_does(one)
        action = self.attach_as_ironic_does(two)
        self.make_fail(three)
        held = self.dump()
        self.assertIn("encrypted:2:", held)
        self.assertIn(CONNECTOR["initiator"], held)
        self.api.request_json("DELETE", path)
        self.api.request_json("POST", action, {"os-detach": {}})
        self.listener.wait_for("volume.detach.end")
        wait_until(lambda: "attach_exclusive" in self.ear.text)
        places = {
            "database": held,
            "database afterwards": self.dump(),
            "manager's log": self.manager.output,
            "API's log": self.server.output,
            "messages": self.ear.text,
            "notifications": json.dumps(self.listener.wait_for("volume.attach.end"), default=str),
        }
        # It was received and logged.
        self.assertIn("attach_exclusive", places["messages"])
        self.assertIn("volume.attach.end", places["messages"])
        self.assertIn("encrypted:2:", places["messages"])
        self.assertIn("DEBUG", places["manager's log"])
        self.assertIn("DEBUG sqlalchemy", places["API's log"])
        found = [
            (place, name)
            for place, text in places.items()
            for name, secret in self.secrets.items()
            if secret in text
        ]
        self.assertEqual([], found)
