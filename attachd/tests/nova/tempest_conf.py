# SPDX-License-Identifier: Apache-2.0
"""Tempest's configuration for the cloud of cloud.py: Compute without networks."""

import os
from pathlib import Path
from typing import Any

from attachd.tests.consumers.config_files import TEMPEST_ACCESS
from attachd.tests.nova import libvirt_host

_TEMPLATE = """\
region = {region}
[service_available]
cinder = true
glance = true
neutron = true
nova = true
swift = false
[validation]
run_validation = false
[compute]
image_ref = {image}
image_ref_alt = {image}
flavor_ref = {flavor}
flavor_ref_alt = {larger}
min_microversion = 2.1
max_microversion = {microversion}
min_compute_nodes = 2
# Its hypervisor is another one: no server can be migrated to it.
target_hosts_to_avoid = {libvirt_host}
build_interval = 1
build_timeout = 240
region = {region}
[compute-feature-enabled]
attach_encrypted_volume = false
block_migration_for_live_migration = true
can_migrate_between_any_hosts = true
console_output = false
interface_attach = false
live_migration = true
resize = true
rescue = true
stable_rescue = false
swap_volume = true
vnc_console = false
volume_backed_live_migration = true
volume_multiattach = true
[volume]
build_interval = 1
build_timeout = 240
catalog_type = block-storage
max_microversion = 3.71
min_microversion = 3.0
region = {region}
volume_size = 1
volume_type = disk
volume_type_multiattach = disk-multi
[volume-feature-enabled]
backup = false
snapshot = true
"""


def write(cloud: Any, folder: Path) -> Path:
    """Write tempest.conf into a folder, and return its path.

    :param cloud: the module cloud.py of the scripts
    """
    path = folder / "tempest.conf"
    access = TEMPEST_ACCESS.format(
        folder=folder,
        user="admin",
        password=os.environ["ADMIN_PASS"],
        project="admin",
        auth_url=os.environ["KS_URL"],
    )
    text = _TEMPLATE.format(
        region=os.environ["OS_REGION"],
        image=cloud.IMAGE["id"],
        flavor=cloud.FLAVORS["disk"],
        larger=cloud.FLAVORS["big"],
        microversion=cloud.COMPUTE_MV,
        libvirt_host=libvirt_host.HOST,
    )
    path.write_text(access + text, encoding="utf-8")
    return path
