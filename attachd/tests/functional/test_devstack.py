# SPDX-License-Identifier: Apache-2.0
"""Tests of the phases of the devstack plug-in with real servers."""

import json
from pathlib import Path
import shutil
import socket
import subprocess
import tempfile
from urllib import parse
import uuid

import requests
import sqlalchemy as sa
import testtools
import yaml

from attachd.tests.fixtures import cli_commands, keystone_fixture, processes, requirements
from attachd.tests.fixtures.devstack import CREDENTIALS, GENUINE, Devstack
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

INITIATOR = "iqn.2026-01.example:host"
# Three bytes are not enough for the last character.
NAME = "disk-\N{ROCKET}"


class SettingsTest(testtools.TestCase):
    """What becomes of the lines of local.conf; nothing is started."""

    def _devstack(self, **settings):
        devstack = Devstack(self, MYSQL_PASSWORD="secret", **CREDENTIALS, **settings)
        # An unknown phase.
        devstack.run("nothing")
        return devstack

    def test_devstack_plugin_replaces_cinder(self):
        devstack = self._devstack()
        self.assertEqual(
            {"attachd-api", "attachd-manager", "attachd-tgtd"}, _own(devstack.services)
        )
        self.assertEqual(
            set(), {service for service in devstack.services if service.startswith("c-")}
        )
        self.assertEqual("http://127.0.0.1:8776", devstack.variables["ATTACHD_URL"])
        self.assertEqual(keystone_fixture.REGION, devstack.variables["ATTACHD_REGION_NAME"])

    def test_devstack_plugin_beside_cinder_uses_its_own_region(self):
        devstack = self._devstack(ATTACHD_REPLACE_CINDER="False", ATTACHD_AGENT="True")
        self.assertLess({"c-api", "c-sch", "c-vol", "attachd-agent"}, devstack.services)
        self.assertEqual("attachd", devstack.variables["ATTACHD_REGION_NAME"])
        self.assertEqual("3261", devstack.variables["ATTACHD_TGT_PORT"])

    def test_devstack_plugin_with_tls_uses_https(self):
        devstack = self._devstack(ENABLED_SERVICES="key,mysql,rabbit,tls-proxy")
        self.assertEqual("https://127.0.0.1/attachd", devstack.variables["ATTACHD_URL"])

    def test_devstack_plugin_enables_agent_only_host(self):
        devstack = self._devstack(
            DISABLED_SERVICES="attachd-api,attachd-manager", ATTACHD_AGENT="True"
        )
        self.assertEqual({"attachd-agent"}, _own(devstack.services))

    def test_devstack_plugin_without_tgt_backend_enables_no_tgtd(self):
        devstack = self._devstack(ATTACHD_BACKENDS="file:one,fake:two")
        self.assertEqual({"attachd-api", "attachd-manager"}, _own(devstack.services))


def _own(services):
    return {service for service in services if service.startswith("attachd")}


@full_only("devstack")
class PhasesTest(testtools.TestCase):
    """A whole life, with Keystone, MariaDB, RabbitMQ and a tgtd."""

    def setUp(self):
        super().setUp()
        requirements.require_root(self)
        for tool in ("tgtd", "setsid", "mysql", "rabbitmqctl"):
            requirements.require_tool(self, tool)
        self.keystone = keystone_fixture.shared(self)
        self.keystone.project("service")
        self.keystone.forget_endpoint("block-storage")
        self.addCleanup(self.keystone.forget_endpoint, "block-storage")
        self.alice = self.keystone.user("alice", "member")
        self.name = f"attachd_test_{uuid.uuid4().hex[:12]}"
        self.server = sa.engine.make_url(requirements.require_server(self, "mariadb"))
        self.devstack = Devstack(self, **self._settings())
        self.devstack.environment |= {
            "PATH": cli_commands.command_path(self),
            "OS_CLIENT_CONFIG_FILE": str(self._write_clouds()),
            "COLUMNS": "200",
        }

    def _settings(self):
        broker = parse.urlsplit(requirements.require_server(self, "rabbitmq"))
        self.addCleanup(self._forget_vhost)
        self._make_database_user()
        self.portal = f"127.0.0.1:{processes.free_port()}"
        own = {
            "ADMIN_PASSWORD": self.keystone.admin.password,
            "ATTACHD_AGENT": "True",
            "ATTACHD_AGENT_HOST": "node-1",
            "ATTACHD_DATABASE": self.name,
            "ATTACHD_PORT": processes.free_port(),
            "ATTACHD_TGT_PORT": self.portal.partition(":")[2],
            "ATTACHD_USER": self.name,
            "ATTACHD_VHOST": self.name,
            "DATABASE_PASSWORD": self.name,
            "DATABASE_USER": self.name,
            "KEYSTONE_SERVICE_URI": self.keystone.url,
            "RABBIT_HOST": broker.hostname,
            "RABBIT_PASSWORD": broker.password,
            "RABBIT_USERID": broker.username,
        }
        return CREDENTIALS | own

    def _make_database_user(self):
        account = f"{self.name}@'%%'"
        self._sql(f"CREATE USER {account} IDENTIFIED BY '{self.name}'")
        self.addCleanup(self._sql, f"DROP USER {account}")
        self.addCleanup(self._sql, f"DROP DATABASE IF EXISTS {self.name}")
        self._sql(f"GRANT ALL ON {self.name}.* TO {account}")

    def _sql(self, statement):
        engine = sa.create_engine(self.server, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            found = connection.exec_driver_sql(statement)
            return found.scalars().all() if found.returns_rows else []

    def _vhosts(self):
        control = requirements.require_tool(self, "rabbitmqctl")
        return processes.check_output([control, "--quiet", "list_vhosts"]).split()

    def _forget_vhost(self):
        for name in {self.name, f"{self.name}-agents"} & set(self._vhosts()):
            subprocess.run(["rabbitmqctl", "delete_vhost", name], check=True)

    def _write_clouds(self):
        admin = self.keystone.admin
        auth = {
            "auth_url": admin.keystone_url,
            "username": admin.name,
            "password": admin.password,
            "user_domain_id": keystone_fixture.DOMAIN,
        }
        project = {"project_name": admin.project, "project_domain_id": keystone_fixture.DOMAIN}
        clouds = {
            "devstack-admin": {"auth": auth | project, "region_name": keystone_fixture.REGION},
            "devstack-system-admin": {
                "auth": auth | {"system_scope": "all"},
                "region_name": keystone_fixture.REGION,
            },
        }
        written = Path(tempfile.mkdtemp(prefix="attachd-test-"))
        self.addCleanup(shutil.rmtree, written)
        (written / "clouds.yaml").write_text(yaml.safe_dump({"clouds": clouds}))
        return written / "clouds.yaml"

    def test_devstack_phases_from_install_to_clean_can_be_repeated(self):
        for _ in range(2):
            self.devstack.run("stack", "install")
        if not GENUINE:
            self.assertIn(f"setup_develop {processes.ROOT} memcached,host", self.devstack.calls)
            self.assertIn("install_package tgt", self.devstack.calls)
            self.assertIn("stop_service tgt", self.devstack.calls)
        written = []
        for _ in range(2):
            self.devstack.run("stack", "post-config")
            files = sorted((self.devstack.folder / "etc").iterdir())
            secret = [file.name for file in files if not file.stat().st_mode & 0o077]
            self.assertEqual(["attachd-agent.conf", "attachd.conf"], secret)
            written.append({file.name: file.read_text() for file in files})
        self.assertEqual(*written)
        self.devstack.run("stack", "extra")
        first = self.devstack.running
        self.assertEqual(
            {"attachd-agent", "attachd-api", "attachd-manager", "attachd-tgtd"}, set(first)
        )
        # Begins with an empty database, under services that run and go on.
        self.devstack.run("stack", "extra")
        self.devstack.run("stack", "test-config")
        self.assertEqual(set(first), set(self.devstack.running))
        nova = (self.devstack.folder / "nova.conf").read_text()
        self.assertIn(f"os_region_name = {keystone_fixture.REGION}\n", nova)
        self.assertIn("username = nova\n", nova)
        if not GENUINE:
            tempest = (self.devstack.folder / "tempest.conf").read_text()
            self.assertIn("[service_available]\ncinder = True\n", tempest)
            self.assertIn("snapshot = False\n", tempest)
        self._use_it()
        for _ in range(2):
            self.devstack.run("unstack")
            self.assertEqual({}, self.devstack.running)
        for _ in range(2):
            self.devstack.run("clean")
            self._check_cleaned()

    def test_devstack_phases_beside_cinder_register_two_regions(self):
        cinder = "http://127.0.0.1:1/volume/v3"
        self.keystone.endpoint("block-storage", cinder)
        self.addCleanup(self._forget_region)
        self.devstack.settings |= {
            "ATTACHD_AGENT": "False",
            "ATTACHD_BACKENDS": "fake:one",
            "ATTACHD_REPLACE_CINDER": "False",
        }
        self.devstack.run("stack", "post-config")
        self.devstack.run("stack", "extra")
        self.assertEqual({"attachd-api", "attachd-manager"}, set(self.devstack.running))
        self.assertFalse((self.devstack.folder / "nova.conf").exists())
        found = self._endpoints()
        url = f"http://127.0.0.1:{self.devstack.settings['ATTACHD_PORT']}/v3"
        self.assertEqual({(keystone_fixture.REGION, cinder), ("attachd", url)}, found)
        listed = self._client(
            self.alice,
            *("openstack", "volume", "type", "list", "-fvalue", "-cName"),
            OS_REGION_NAME="attachd",
        )
        self.assertEqual("multiattach\n", listed)
        self.devstack.run("unstack")
        self.assertEqual({}, self.devstack.running)
        self.devstack.run("clean")
        self._check_cleaned()

    def _forget_region(self):
        rest = self.keystone.rest
        for endpoint in rest.get("/endpoints?region_id=attachd").json()["endpoints"]:
            rest.delete(f"/endpoints/{endpoint['id']}")
        rest.delete("/regions/attachd", raise_exc=False)

    def _use_it(self):
        url = f"http://127.0.0.1:{self.devstack.settings['ATTACHD_PORT']}"
        admin = self.keystone.token(self.keystone.admin)

        def ask(path):
            headers = {"X-Auth-Token": admin, "OpenStack-API-Version": "attachd 1.0"}
            answer = requests.get(f"{url}/v3{path}", headers=headers, timeout=TIMEOUT)
            self.assertEqual(200, answer.status_code, answer.text + self.devstack.logs)
            return answer.json()

        wait_until(
            lambda: [service["state"] for service in ask("/os-services")["services"]] == ["up"],
            lambda: self.devstack.logs,
        )
        wait_until(
            lambda: (
                [(agent["host"], agent["state"]) for agent in ask("/agents")["agents"]]
                == [("node-1", "up")]
            ),
            lambda: self.devstack.logs,
        )
        self.assertEqual({(keystone_fixture.REGION, f"{url}/v3")}, self._endpoints())
        alice = self.alice
        volume = self._make_volume(alice)
        for server in (uuid.uuid4(), uuid.uuid4()):
            made = self._client(
                alice, "cinder", "--os-volume-api-version=3.54", "attachment-create",
                "--connect=True", f"--initiator={INITIATOR}", "--host=host", "--ip=192.0.2.1",
                volume, str(server),
            )  # fmt: skip
            self.assertIn(self.portal, made)
            self.assertIn(volume, made)
        shown = json.loads(self._client(alice, "openstack", "volume", "show", "-fjson", volume))
        self.assertEqual((NAME, "attaching"), (shown["name"], shown["status"]))
        self.assertIn(f"volume-{volume}", self._targets())

    def _endpoints(self):
        """The region and the URL of each in the catalogue, the same for all interfaces."""
        command = ("openstack", "catalog", "show", "block-storage", "-fjson")
        found = {}
        for endpoint in json.loads(self._client(self.alice, *command))["endpoints"]:
            place = (endpoint["region"], endpoint["url"])
            found.setdefault(place, set()).add(endpoint["interface"])
        for interfaces in found.values():
            self.assertEqual({"public", "internal", "admin"}, interfaces)
        return set(found)

    def _make_volume(self, user):
        made = self._client(
            user, "openstack", "volume", "create", "-fjson", "--size=1", "--type=multiattach", NAME
        )
        volume = json.loads(made)["id"]
        wait_until(
            lambda: (
                "available"
                in self._client(user, "openstack", "volume", "show", "-cstatus", "-fvalue", volume)
            ),
            lambda: self.devstack.logs,
        )
        return volume

    def _client(self, user, *command, **variables):
        done = processes.run(
            command,
            env=processes.environment(
                PATH=cli_commands.command_path(self),
                HOME=str(self.devstack.folder),
                **(user.environment | variables),
            ),
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.devstack.logs)
        return done.stdout

    def _targets(self):
        return processes.check_output(
            [
                requirements.require_tool(self, "tgtadm"),
                "--lld=iscsi",
                "--op=show",
                "--mode=target",
            ],
            env={"TGT_IPC_SOCKET": str(self.devstack.folder / "data" / "attachd" / "tgtd")},
        )

    def _check_cleaned(self):
        self.assertEqual([], self._sql(f"SHOW DATABASES LIKE '{self.name}'"))
        self.assertEqual([], [name for name in self._vhosts() if name.startswith(self.name)])
        for name in ("etc", "data/attachd"):
            self.assertFalse((self.devstack.folder / name).exists(), name)
        self.assertEqual([], list((self.devstack.folder / "systemd").iterdir()))
        for port in (self.devstack.settings["ATTACHD_PORT"], self.portal.partition(":")[2]):
            with socket.socket() as probe:
                self.assertNotEqual(0, probe.connect_ex(("127.0.0.1", int(port))))
