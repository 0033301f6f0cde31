# SPDX-License-Identifier: Apache-2.0
"""Tests of multiattach types and volumes with stock clients."""

import json
import re

from openstack import exceptions

from attachd.tests.fixtures import sdk
from attachd.tests.functional import test_client_libraries as libraries
from attachd.tests.functional import test_clients as commands
from attachd.tests.functional.test_clients import UUID
from attachd.tests.selection import full_only

FIRST = "11111111-2222-4333-8444-555555555555"
SECOND = "22222222-2222-4333-8444-555555555555"


@full_only("clients")
class OpenStackCommandTest(commands.Case):
    def disk(self):
        return json.loads(self.shell("openstack volume show disk -f json"))

    def test_openstack_command_multiattach_cycle_works(self):
        said = self.shell(
            """
            openstack volume type create --multiattach shared -f value -c properties
            openstack volume type create --property multiattach='<is> True' --property mode=RO \\
                one-writer -f value -c name
            openstack volume type create --property mode=rubbish bad 2>&1 || echo refused
            openstack volume create --type shared --size 1 disk -f value -c multiattach
            wait_for available
            """
        ).splitlines()
        self.assertEqual(["{'multiattach': '<is> True'}", "one-writer"], said[:2])
        self.assertRegex(said[2], "for field/attribute mode. Value: 'rubbish'. It has to be RW")
        self.assertEqual(["refused", "True"], said[-2:])
        said = self.shell(
            f"""
            cinder --os-volume-api-version 3.44 attachment-create disk {FIRST}
            cinder --os-volume-api-version 3.44 attachment-create disk {SECOND}
            """
        )
        own = re.findall(rf"\| id +\| ({UUID})", said)
        self.assertEqual(2, len(own), said)
        for attachment, host in zip(own, ("node-1", "node-2"), strict=True):
            self.shell(
                f"openstack volume attachment set {attachment} --host {host}\n"
                f"openstack volume attachment complete {attachment}"
            )
        shown = self.disk()
        self.assertEqual("in-use", shown["status"])
        self.assertEqual([FIRST, SECOND], [item["server_id"] for item in shown["attachments"]])
        said = self.shell("openstack volume set --type one-writer disk 2>&1 || echo refused")
        self.assertIn("only possible while a volume is available", said)
        self.assertEqual("refused", said.splitlines()[-1])
        for attachment in own:
            self.shell(f"openstack volume attachment delete {attachment}")
        self.assertEqual("available", self.disk()["status"])


@full_only("clients")
class CinderCommandTest(commands.Case):
    def test_cinder_command_multiattach_types_work(self):
        said = self.shell(
            """
            cinder type-create shared
            cinder type-key shared set multiattach='<is> True' max_attachments=2
            cinder type-key shared set max_attachments=none 2>&1 || echo refused
            cinder type-create plain
            cinder type-create archive; cinder type-key archive set mode=RO
            echo pools; cinder --os-volume-api-version 3.35 get-pools --filters volume_type=shared
            echo no; cinder --os-volume-api-version 3.35 get-pools --filters volume_type=archive
            cinder create --name disk --volume-type plain 1
            wait_for available
            cinder retype disk shared
            cinder show disk
            cinder type-key shared unset max_attachments 2>&1 || echo refused too
            cinder retype disk plain
            cinder show disk
            """
        )
        self.assertRegex(said, r"pools\n\+-[^#]+\| name +\| all-in-one@file#file +\|")
        self.assertNotIn("all-in-one@file", said[said.index("\nno\n") :].partition("disk")[0])
        self.assertIn("Value: 'none'. It has to be a number, 1 to 1000000.", said)
        self.assertIn("refused\n", said)
        self.assertIn("Volume Type is currently in use.", said)
        self.assertIn("refused too", said)
        flags = re.findall(r"\| multiattach +\| (\w+)", said)
        self.assertEqual(["False", "True", "False"], flags)


class SdkTest(libraries.Case):
    def test_sdk_multiattach_parameter_is_refused_with_message(self):
        storage = sdk.block_storage(self, self.process.url)
        reason = "multiattach parameter has been removed.*choose one with the extra spec"
        with self.assertRaisesRegex(exceptions.BadRequestException, reason):
            storage.create_volume(size=1, is_multiattach=True)
        kind = storage.create_type(name="shared", extra_specs={"multiattach": "<is> True"})
        self.assertTrue(storage.create_volume(size=1, volume_type=kind.id).is_multiattach)
