# SPDX-License-Identifier: Apache-2.0
"""A real Keystone for tests: its package, in a process of its own, on loopback.

``keystones.shared(self)`` in a setUp() returns the one of this test process, started when it is
first asked for and ended with the process::

    keystone = keystones.shared(self)
    alice = keystone.user("alice", "member")
    nova = keystone.user("nova", "service", project="service")
    keystone.endpoint("block-storage", f"{url}/v3")
    token = keystone.token(alice)
    cloud = openstack.connect(**alice.cloud)

What is there when it starts: domain Default, region RegionOne, user and project ``admin``, and
the roles admin, manager, member, reader and service with their implications.  Projects and users
are random unless a name is given, so that tests do not meet.
"""

import dataclasses
from pathlib import Path
import sys
from typing import Any
import unittest
import uuid

from keystoneauth1 import adapter, session
from keystoneauth1.identity import v3
import requests

from attachd.tests import databases
from attachd.tests.functional import keystoned, processes
from attachd.tests.lasting import Lasting
from attachd.tests.wait import TIMEOUT

REGION = keystoned.REGION
DOMAIN = "default"

_CONFIGURATION = """\
[DEFAULT]
use_stderr = true
default_log_levels = keystone=WARN

[database]
connection = {database}

[fernet_tokens]
key_repository = {folder}/fernet_tokens

[fernet_receipts]
key_repository = {folder}/fernet_receipts

[credential]
key_repository = {folder}/credential

[identity]
# Its hashes need not withstand anybody.
password_hash_rounds = 4

[token]
expiration = {token_seconds}
"""


@dataclasses.dataclass(frozen=True)
class User:
    """Somebody who can prove to be so.

    :ivar project_id: where the user's roles are
    """

    keystone_url: str
    id: str
    name: str
    password: str
    project_id: str
    project: str

    def login(self, **scope: Any) -> v3.Password:
        """Return what keystoneauth1 gets tokens with.

        :param scope: instead of the project, such as ``system_scope="all"`` or
            ``domain_id="default"``; ``unscoped=True`` for none
        """
        return v3.Password(
            self.keystone_url,
            username=self.name,
            password=self.password,
            user_domain_id=DOMAIN,
            **(scope or {"project_id": self.project_id}),
        )

    @property
    def cloud(self) -> dict[str, Any]:
        """Arguments of openstack.connect()."""
        return {
            "auth_type": "password",
            "auth": {
                "auth_url": self.keystone_url,
                "username": self.name,
                "password": self.password,
                "project_id": self.project_id,
                "user_domain_id": DOMAIN,
            },
            "region_name": REGION,
            "load_envvars": False,
            "load_yaml_config": False,
            "app_name": "attachd-tests",
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the commands openstack and cinder."""
        return {
            "OS_AUTH_TYPE": "password",
            "OS_AUTH_URL": self.keystone_url,
            "OS_USERNAME": self.name,
            "OS_PASSWORD": self.password,
            "OS_PROJECT_ID": self.project_id,
            "OS_PROJECT_NAME": self.project,
            "OS_USER_DOMAIN_ID": DOMAIN,
            "OS_PROJECT_DOMAIN_ID": DOMAIN,
            "OS_REGION_NAME": REGION,
            "OS_IDENTITY_API_VERSION": "3",
        }

    @property
    def middleware(self) -> str:
        """The options with which a service checks tokens: the group's name and its lines."""
        return (
            "[keystone_authtoken]\n"
            f"www_authenticate_uri = {self.keystone_url}\n"
            f"auth_url = {self.keystone_url}\n"
            "auth_type = password\n"
            f"username = {self.name}\n"
            f"password = {self.password}\n"
            f"project_id = {self.project_id}\n"
            f"user_domain_id = {DOMAIN}\n"
            f"region_name = {REGION}\n"
        )


class Keystone:
    """A running Keystone.

    :ivar url: http://127.0.0.1:PORT/v3
    :ivar admin: has the role admin in the project admin and on the system
    :ivar rest: its API as admin: ``keystone.rest.get("/users").json()``
    """

    def __init__(
        self, test: unittest.TestCase, database: str = "sqlite", token_seconds: int = 3600
    ) -> None:
        """Start one of the test's own; it takes about three seconds.

        :param database: sqlite, or mariadb for many clients at the same time
        """
        folder = processes.folder(test)
        (folder / "keystone.conf").write_text(
            _CONFIGURATION.format(
                database=databases.url(test, database), folder=folder, token_seconds=token_seconds
            ),
            encoding="utf-8",
        )
        password = uuid.uuid4().hex
        self.process = processes.Process(
            test, sys.executable, "-P", str(Path(keystoned.__file__)), str(folder), password
        )
        self.url = self.process.wait_for(r"Keystone listens on (\S+) ")[1]
        admin = User(self.url, "", "admin", password, "", "admin")
        self._session = session.Session()
        self.rest = self._adapter(admin, project_name="admin", project_domain_id=DOMAIN)
        token = self.rest.get("/auth/tokens", headers={"X-Subject-Token": self.rest.get_token()})
        said = token.json()["token"]
        self.admin = dataclasses.replace(
            admin, id=said["user"]["id"], project_id=said["project"]["id"]
        )
        self._projects = {"admin": self.admin.project_id}
        self._roles = {each["name"]: each["id"] for each in self._get("roles")}

    def _adapter(self, user: User, **scope: Any) -> adapter.Adapter:
        return adapter.Adapter(self._session, auth=user.login(**scope), endpoint_override=self.url)

    def _get(self, collection: str, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rest.get(f"/{collection}", params=query).json()[
            collection
        ]
        return found

    def make(self, noun: str, **values: Any) -> dict[str, Any]:
        """Make what Keystone keeps, such as ``make("group", name="staff")``."""
        answer = self.rest.post(f"/{noun}s", json={noun: values}).json()
        made: dict[str, Any] = answer[noun]
        return made

    def project(self, name: str | None = None) -> str:
        """Return the id of a project, made where there is none of this name.

        :param name: None: any new name
        """
        name = name or f"project-{uuid.uuid4().hex[:8]}"
        if name not in self._projects:
            self._projects[name] = self.make("project", name=name, domain_id=DOMAIN)["id"]
        return self._projects[name]

    def user(self, name: str, *roles: str, project: str | None = None) -> User:
        """Make a user.

        :param name: the beginning of the user's name, which is new each time
        :param roles: in the project; a role that Keystone does not know is made
        :param project: its name; None: a new one of the user's own
        """
        project = project or f"{name}-{uuid.uuid4().hex[:8]}"
        name = f"{name}-{uuid.uuid4().hex[:8]}"
        password = uuid.uuid4().hex
        made = self.make("user", name=name, password=password, domain_id=DOMAIN)
        user = User(self.url, made["id"], name, password, self.project(project), project)
        self.grant(user, *roles)
        return user

    def grant(self, user: User, *roles: str, project: str | None = None) -> None:
        """Give a user roles in a project, by default in the user's own."""
        place = self.project(project) if project else user.project_id
        for role in roles:
            self.rest.put(f"/projects/{place}/users/{user.id}/roles/{self._role(role)}")

    def grant_system(self, user: User, *roles: str) -> None:
        """Give a user roles on the system: ``token(user, system_scope="all")`` has them."""
        for role in roles:
            self.rest.put(f"/system/users/{user.id}/roles/{self._role(role)}")

    def _role(self, name: str) -> str:
        if name not in self._roles:
            self._roles[name] = self.make("role", name=name)["id"]
        return str(self._roles[name])

    def token(self, user: User, **scope: Any) -> str:
        """Return a new token of a user.

        :param scope: as of User.login()
        """
        token = user.login(**scope).get_token(self._session)
        assert token is not None
        return token

    def revoke(self, token: str) -> None:
        """Make a token invalid."""
        self.rest.delete("/auth/tokens", headers={"X-Subject-Token": token})

    def application_credential(self, user: User, **values: Any) -> dict[str, Any]:
        """Make an application credential of a user: its ``id``, ``secret`` and so on."""
        wanted = {"name": uuid.uuid4().hex, **values}
        answer = self._adapter(user).post(
            f"/users/{user.id}/application_credentials",
            json={"application_credential": wanted},
        )
        made: dict[str, Any] = answer.json()["application_credential"]
        return made

    def endpoint(self, service_type: str, url: str) -> None:
        """Enter the URL of a service into the catalogue, instead of the one it had.

        :param service_type: such as block-storage or compute
        :param url: may have ``%(project_id)s`` in it
        """
        services = self._get("services", type=service_type)
        service = (
            services[0] if services else self.make("service", type=service_type, name=service_type)
        )
        self.forget_endpoint(service_type)
        for interface in ("public", "internal", "admin"):
            self.make(
                "endpoint",
                service_id=service["id"],
                interface=interface,
                url=url,
                region_id=REGION,
            )

    def forget_endpoint(self, service_type: str) -> None:
        """Leave a service without a URL in the catalogue."""
        for service in self._get("services", type=service_type):
            for each in self._get("endpoints", service_id=service["id"]):
                self.rest.delete(f"/endpoints/{each['id']}")


def shared(test: unittest.TestCase) -> Keystone:
    """Return the Keystone of this test process."""
    if _shared and requests.get(_shared[0].url, timeout=TIMEOUT).ok:
        return _shared[0]
    _shared[:] = [Keystone(Lasting(test))]
    return _shared[0]


_shared: list[Keystone] = []
