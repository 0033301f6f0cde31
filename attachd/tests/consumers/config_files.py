# SPDX-License-Identifier: Apache-2.0
"""The configuration files of the suites, for one cloud; used by cloud.py."""

import json
from pathlib import Path

from attachd.tests.consumers.credentials import Credentials
from attachd.tests.fixtures.keystone_fixture import User

TEMPEST_ACCESS = """\
[DEFAULT]
log_file = {folder}/tempest.log
[oslo_concurrency]
lock_path = {folder}
[auth]
use_dynamic_credentials = true
create_isolated_networks = false
admin_username = {user}
admin_password = {password}
admin_project_name = {project}
admin_domain_name = Default
[identity]
auth_version = v3
uri_v3 = {auth_url}
v3_endpoint_type = public
"""
"""What each tempest.conf begins with."""

TEMPEST = """\
[service_available]
cinder = true
glance = true
# It is not there: see fake_neutron.py.
neutron = true
nova = false
swift = false
[enforce_scope]
cinder = true
[volume]
catalog_type = block-storage
min_microversion = 3.0
max_microversion = 3.71
vendor_name = attachd
storage_protocol = fake
backend_names = first,second
build_interval = 1
build_timeout = 240
volume_size = 1
manage_snapshot_ref = source-name,snapshot-%s
[compute]
image_ref = {image}
image_ref_alt = {image}
[compute-feature-enabled]
# Lets volumes be retyped to and from multiattach; no server is made.
volume_multiattach = true
[volume-feature-enabled]
concurrency_tests = true
backup = false
snapshot = true
volume_revert = true
clone = true
enable_volume_image_dep_tests = true
multi_backend = true
manage_volume = true
manage_snapshot = true
extend_attached_volume = false
"""


def tempest(cloud: Credentials, admin: User, image: str, folder: Path) -> str:
    """Return tempest.conf.

    :param image: the id of an image that all users see
    :param folder: for Tempest's log and its locks
    """
    access = TEMPEST_ACCESS.format(
        folder=folder,
        user=admin.name,
        password=admin.password,
        project=admin.project,
        auth_url=cloud.auth_url,
    )
    return access + TEMPEST.format(image=image)


def clouds(path: Path, cloud: Credentials, admin: User) -> None:
    """Write clouds.yaml with the names that the suites ask for; JSON is YAML, too."""

    def entry(user: str, password: str, **scope: str) -> dict[str, object]:
        return {
            "auth": {
                "auth_url": cloud.auth_url,
                "username": user,
                "password": password,
                "user_domain_name": "Default",
                **scope,
            },
            "identity_api_version": "3",
            # Some of openstacksdk's tests skip themselves unless the cloud is configured so.
            "has_volume": True,
            "volume_api_version": "3",
        }

    domain = {"project_domain_name": "Default"}
    member = entry(cloud.user, cloud.password, project_name=cloud.project, **domain)
    named = {
        "devstack": member,
        "devstack-alt": member,
        "devstack-admin": entry(admin.name, admin.password, project_name=admin.project, **domain),
        "devstack-system-admin": entry(admin.name, admin.password, system_scope="all"),
    }
    path.write_text(json.dumps({"clouds": named}), encoding="utf-8")
