# SPDX-License-Identifier: Apache-2.0
"""Tests of stock clients that log in with Keystone passwords and with HTTP Basic."""

import bcrypt
from cinderclient import client as cinder
from cinderclient import exceptions as cinder_exceptions
from keystoneauth1 import exceptions, http_basic, session
from keystoneauth1.identity import v3
import openstack
from openstack import exceptions as sdk_exceptions
import requests
import testtools

from attachd.tests.fixtures import cli_commands, keystone_fixture, lifetime
from attachd.tests.fixtures.deployments import AllInOne, Deployment
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

ALICES, BOBS = "a" * 32, "b" * 32
CONFIGURATION = """\
[file]
file_loop_devices = never

[api]
auth_strategy = {}
"""


@full_only("clients")
class Case(testtools.TestCase):
    def start(self, strategy, more=""):
        self.folder = lifetime.temp_dir(self)
        configuration = self.folder / "own.conf"
        configuration.write_text(CONFIGURATION.format(strategy) + more)
        self.process = AllInOne(self, self.folder / "state", f"--config-file={configuration}")
        self.process.show_in_failures(self)

    def cinder(self, plugin, **more):
        session_ = session.Session(auth=plugin)
        self.addCleanup(session_.session.close)
        return cinder.Client("3.71", session=session_, **more)

    def cloud(self, **arguments):
        own = {"load_envvars": False, "load_yaml_config": False, "app_name": "attachd-tests"}
        connection = openstack.connect(**{**own, **arguments})
        self.addCleanup(connection.close)
        return connection.block_storage

    def shell(self, command, environment):
        return cli_commands.run_script(
            self, self.process, command, **{"HOME": str(self.folder), **environment}
        )

    def cycle_with_sdk(self, storage):
        """One volume, attached and detached."""
        volume = storage.create_volume(name="disk", size=1)
        storage.wait_for_status(volume, "available", interval=0.1, wait=TIMEOUT)
        attachment = storage.create_attachment(volume.id, connector={"host": "one"})
        storage.complete_attachment(attachment)
        self.assertEqual("in-use", storage.get_volume(volume.id).status)
        self.assertEqual([attachment.id], [item.id for item in storage.attachments()])
        storage.delete_attachment(attachment)
        return volume

    def cycle_with_cinderclient(self, client):
        """The same."""
        volume = client.volumes.create(1, name="other")
        wait_until(lambda: client.volumes.get(volume.id).status == "available")
        attachment = client.attachments.create(volume.id, {"host": "one"})["id"]
        client.attachments.complete(attachment)
        self.assertEqual("in-use", client.volumes.get(volume.id).status)
        client.attachments.delete(attachment)
        return volume


class KeystoneTest(Case):
    def setUp(self):
        super().setUp()
        self.keystone = keystone_fixture.shared(self)
        service = self.keystone.user("attachd", "service", project="service")
        self.start("keystone", service.middleware)
        self.keystone.endpoint("block-storage", f"{self.process.url}/v3")
        self.alice = self.keystone.user("alice", "member")

    def test_keystone_login_of_openstacksdk_works(self):
        volume = self.cycle_with_sdk(self.cloud(**self.alice.cloud))
        rita = self.keystone.user("rita", "reader", project=self.alice.project)
        mallory = self.keystone.user("mallory", "member")
        storage = self.cloud(**rita.cloud)
        self.assertEqual([volume.id], [item.id for item in storage.volumes()])
        with self.assertRaises(sdk_exceptions.ForbiddenException):
            storage.delete_volume(volume.id)
        storage = self.cloud(**mallory.cloud)
        self.assertEqual([], list(storage.volumes()))
        with self.assertRaises(sdk_exceptions.NotFoundException):
            storage.get_volume(volume.id)
        storage = self.cloud(**self.keystone.admin.cloud)
        found = list(storage.volumes(all_projects=True))
        self.assertEqual([self.alice.project_id], [item.project_id for item in found])

    def test_keystone_login_of_openstacksdk_with_application_credential_works(self):
        made = self.keystone.application_credential(self.alice)
        auth = {
            "auth_url": self.keystone.url,
            "application_credential_id": made["id"],
            "application_credential_secret": made["secret"],
        }
        storage = self.cloud(
            auth_type="v3applicationcredential", auth=auth, region_name=keystone_fixture.REGION
        )
        self.cycle_with_sdk(storage)

    def test_keystone_login_of_cinderclient_works(self):
        client = self.cinder(self.alice.login(), service_type="block-storage")
        volume = self.cycle_with_cinderclient(client)
        mallory = self.keystone.user("mallory", "member")
        client = self.cinder(mallory.login(), service_type="block-storage")
        with self.assertRaises(cinder_exceptions.NotFound):
            client.volumes.get(volume.id)

    def test_keystone_login_of_commands_works(self):
        self.keystone.endpoint("volumev3", f"{self.process.url}/v3/%(project_id)s")
        self.addCleanup(self.keystone.forget_endpoint, "volumev3")
        said = self.shell(
            """
            openstack volume create --size 1 disk -f value -c name
            for _ in $(seq 40); do
                [ "$(openstack volume show disk -f value -c status)" = available ] && break
            done
            cinder attachment-create disk --mode rw > /dev/null
            openstack volume attachment list -f value -c Status
            cinder list
            """,
            self.alice.environment,
        )
        self.assertEqual(["disk", "reserved"], said.splitlines()[:2])
        self.assertRegex(said, r"reserved +\| disk")
        said = self.shell(
            "openstack volume service list -f value", self.keystone.admin.environment
        )
        self.assertIn("all-in-one@file", said)

    def test_keystone_login_with_wrong_password_gets_no_token(self):
        plugin = v3.Password(
            self.keystone.url,
            username=self.alice.name,
            password="wrong",
            user_domain_id=keystone_fixture.DOMAIN,
            project_id=self.alice.project_id,
        )
        client = self.cinder(plugin, service_type="block-storage")
        with self.assertRaises(exceptions.Unauthorized):
            client.volumes.list()


@full_only("clients")
class ServersTest(testtools.TestCase):
    """Keystone behind the web servers that run the API for real."""

    def start(self, server):
        keystone = keystone_fixture.shared(self)
        deployment = Deployment(self, "sqlite")
        service = keystone.user("attachd", "service", project="service")
        with (deployment.folder / "attachd.conf").open("a") as configuration:
            configuration.write(f"\n[api]\nauth_strategy = keystone\n{service.middleware}")
        getattr(deployment, server)().show_in_failures(self)
        token = keystone.token(keystone.user("alice", "reader"))
        url = f"{deployment.url}/v3/volumes"
        for headers, expected in (({}, 401), ({"X-Auth-Token": token}, 200)) * 4:
            answer = requests.get(url, headers=headers, timeout=TIMEOUT)
            self.assertEqual(expected, answer.status_code, answer.text)

    def test_keystone_login_through_gunicorn_works(self):
        self.start("start_gunicorn")

    def test_keystone_login_through_uwsgi_works(self):
        self.start("start_uwsgi")


class BasicTest(Case):
    def setUp(self):
        super().setUp()
        accounts = lifetime.temp_dir(self)
        self.users, self.roles = accounts / "htpasswd", accounts / "roles.yaml"
        self.roles.write_text(
            f"alice: {{project: {ALICES}, roles: [member]}}\n"
            f"bob: {{project: {BOBS}, roles: [reader]}}\n"
            f"root: {{project: {ALICES}, roles: [admin]}}\n"
        )
        self.write_users(alice="sesame", bob="b", root="toor")
        self.start(
            "http_basic",
            f"http_basic_user_file = {self.users}\nhttp_basic_roles_file = {self.roles}\n",
        )
        self.endpoint = f"{self.process.url}/v3"

    def write_users(self, **passwords):
        new = self.users.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(
            "".join(
                f"{name}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}\n"
                for name, password in passwords.items()
            )
        )
        new.replace(self.users)

    def login(self, name, password):
        return {
            "auth_type": "http_basic",
            "auth": {"endpoint": self.endpoint, "username": name, "password": password},
        }

    def environment(self, name, password):
        return {
            "OS_AUTH_TYPE": "http_basic",
            "OS_ENDPOINT": self.endpoint,
            "OS_USERNAME": name,
            "OS_PASSWORD": password,
        }

    def test_basic_auth_login_of_openstacksdk_works(self):
        volume = self.cycle_with_sdk(self.cloud(**self.login("alice", "sesame")))
        storage = self.cloud(**self.login("bob", "b"))
        self.assertEqual([], list(storage.volumes()))
        with self.assertRaises(sdk_exceptions.NotFoundException):
            storage.get_volume(volume.id)
        with self.assertRaises(sdk_exceptions.ForbiddenException):
            storage.create_volume(size=1)
        storage = self.cloud(**self.login("root", "toor"))
        found = list(storage.volumes(all_projects=True))
        self.assertEqual([ALICES], [item.project_id for item in found])
        self.assertTrue(list(storage.services()))
        for wrong in (("alice", "wrong"), ("mallory", "sesame")):
            storage = self.cloud(**self.login(*wrong))
            with self.assertRaises((exceptions.Unauthorized, sdk_exceptions.HttpException)):
                list(storage.volumes())

    def test_basic_auth_login_of_cinderclient_works(self):
        def client(name, password):
            plugin = http_basic.HTTPBasicAuth(self.endpoint, name, password)
            return self.cinder(plugin)

        self.cycle_with_cinderclient(client("alice", "sesame"))
        with self.assertRaises((cinder_exceptions.Unauthorized, exceptions.Unauthorized)):
            client("alice", "wrong").volumes.list()

    def test_basic_auth_login_of_openstack_command_works(self):
        said = self.shell(
            """
            openstack volume create --size 1 disk -f value -c name
            openstack volume list -f value -c Name
            """,
            self.environment("alice", "sesame"),
        )
        self.assertEqual(["disk", "disk"], said.splitlines())
        said = self.shell(
            "openstack volume service list -f value", self.environment("root", "toor")
        )
        self.assertIn("all-in-one@file", said)

    def test_basic_auth_login_of_cinder_command_in_url_works(self):
        # Its own --os-endpoint is in the way of what OS_AUTH_TYPE=http_basic brings along.
        address = self.endpoint.removeprefix("http://")
        said = self.shell(
            "cinder create --name disk 1 > /dev/null; cinder list",
            {
                "OS_AUTH_TYPE": "noauth",
                "OS_USER_ID": "alice",
                "OS_PROJECT_ID": ALICES,
                "CINDER_ENDPOINT": f"http://alice:sesame@{address}",
            },
        )
        self.assertIn("| disk", said)

    def test_basic_auth_removed_account_is_refused_at_once(self):
        storage = self.cloud(**self.login("alice", "sesame"))
        self.assertEqual([], list(storage.volumes()))
        self.write_users(bob="b")
        with self.assertRaises((exceptions.Unauthorized, sdk_exceptions.HttpException)):
            list(storage.volumes())
        self.write_users(alice="new", bob="b")
        self.assertEqual([], list(self.cloud(**self.login("alice", "new")).volumes()))
