# SPDX-License-Identifier: Apache-2.0
"""The deployment for the suites of other projects: Keystone, Glance, and an attachd with them.

attachd runs on gunicorn, RabbitMQ and MariaDB, with two backends of the driver ``fake``, whose one
worker keeps the exports in memory.  There is one public volume type, as devstack creates it, and
one public image.
"""

import os
from pathlib import Path
import unittest

import requests

from attachd.tests.consumers import config_files, credentials, fake_neutron
from attachd.tests.fixtures import (
    cli_commands,
    deployments,
    glance_fixture,
    keystone_fixture,
    lifetime,
    processes,
    requirements,
)
from attachd.tests.wait import TIMEOUT

_MORE = """
[DEFAULT]
default_volume_type = lvmdriver-1

[api]
auth_strategy = keystone

[quota]
quota_volumes = 100
quota_gigabytes = 10000

[first]
driver = fake

[second]
driver = fake

{middleware}
# A busy machine is no reason for a 503 here.
http_connect_timeout = 60

[glance]
connect_timeout = 60
conversion_free_space = 0
{images}
"""


class CloudDeployment:
    """All of it, until the test's clean-ups end it.

    :ivar environment: what the processes of the suites need
    """

    def __init__(self, test: unittest.TestCase) -> None:
        self._test = test
        self._keystone = keystone = keystone_fixture.Keystone(test, database="mariadb")
        trusted = keystone.user("attachd", "service", "admin", project="service")
        deployment = deployments.Deployment(test, "mariadb", backend="first,second", workers=1)
        glance = glance_fixture.Glance(test, keystone)
        images = "\n".join(f"{name} = {value}" for name, value in glance.options().items())
        configuration = deployment.folder / "attachd.conf"
        with configuration.open("a", encoding="utf-8") as file:
            file.write(_MORE.format(middleware=trusted.middleware, images=images))
        self._processes = [deployment.start_manager(), deployment.start_gunicorn()]
        endpoint = f"{deployment.url}/v3"
        keystone.endpoint("block-storage", endpoint)
        keystone.endpoint("network", fake_neutron.start(test))
        _make_type(endpoint, keystone.token(keystone.admin))
        user = keystone.user("demo", "member", project="demo")
        # Ironic asks with its own token for the volumes of a project.
        keystone.grant(trusted, "member", "service", project=user.project)
        self._known = credentials.Credentials(
            auth_url=keystone.url,
            endpoint=endpoint,
            project=user.project,
            user=user.name,
            password=user.password,
            service_project=trusted.project,
            service_user=trusted.name,
            service_password=trusted.password,
        )
        image = _make_image(test, glance, keystone.admin)
        self.environment = self._write(lifetime.temp_dir(test), image)

    def _write(self, folder: Path, image: str) -> dict[str, str]:
        """Write what the suites read, and return the environment in which they find it."""
        admin = self._keystone.admin
        self._known.write(folder / "cloud.json")
        clouds = folder / ".config" / "openstack" / "clouds.yaml"
        clouds.parent.mkdir(parents=True)
        config_files.clouds(clouds, self._known, admin)
        tempest = folder / "tempest.conf"
        tempest.write_text(
            config_files.tempest(self._known, admin, image, folder), encoding="utf-8"
        )
        path = cli_commands.command_path(self._test)
        return processes.environment(
            **admin.environment,  # of python-cinderclient's tests
            ATTACHD_TEST_CLOUD=str(folder / "cloud.json"),
            HOME=str(folder),
            OS_CLIENT_CONFIG_FILE=str(clouds),
            OS_CINDERCLIENT_EXEC_DIR=path.partition(os.pathsep)[0],
            # openstacksdk gives a test 5 seconds, which a busy machine needs for Keystone alone.
            OS_TEST_TIMEOUT="600",
            PATH=path,
            TEMPEST_CONFIG=str(tempest),
            TEMPEST_CONFIG_DIR=str(folder),
        )

    def log(self) -> str:
        """Return all that attachd's processes have written."""
        return "\n".join(process.output for process in self._processes)


def _make_image(
    test: unittest.TestCase, glance: glance_fixture.Glance, admin: keystone_fixture.User
) -> str:
    """Return the id of an image that has to be converted, with a name for which suites look."""
    path = lifetime.temp_dir(test) / "image"
    tool = requirements.require_tool(test, "qemu-img")
    processes.check_output([tool, "create", "-q", "-f", "qcow2", path, "64M"])
    fields = {"name": "cirros-attachd", "disk_format": "qcow2", "visibility": "public"}
    return glance.add(admin, path.read_bytes(), **fields)


def _make_type(endpoint: str, token: str) -> None:
    made = requests.post(
        f"{endpoint}/types",
        json={"volume_type": {"name": "lvmdriver-1"}},
        headers={"X-Auth-Token": token},
        timeout=TIMEOUT,
    )
    made.raise_for_status()
