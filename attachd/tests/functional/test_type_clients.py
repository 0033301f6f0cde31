# SPDX-License-Identifier: Apache-2.0
"""Tests of volume types with stock clients: access, defaults, QoS specs, encryption, filters."""

import re

from cinderclient import exceptions
from openstack import exceptions as sdk_exceptions

from attachd.tests.fixtures import requirements, sdk
from attachd.tests.functional import test_client_libraries as libraries
from attachd.tests.functional import test_clients as commands
from attachd.tests.functional.test_clients import UUID
from attachd.tests.selection import full_only

PROJECT = libraries.PROJECT


def cell(said, name):
    """Return the value beside a name in a table of two columns."""
    return re.search(rf"\| {name} +\| (.*?) +\|", said)[1]


@full_only("clients")
class CinderCommandTest(commands.Case):
    def test_cinder_command_type_calls_work(self):
        said = self.shell("cinder type-create --is-public False --description text hidden")
        kind = re.search(UUID, said)[0]
        said = self.shell(
            f"""
            cinder type-key hidden set volume_backend_name=file multiattach='<is> True'
            cinder type-show hidden
            cinder type-update --name secret {kind}
            cinder type-key secret unset volume_backend_name
            cinder extra-specs-list
            cinder encryption-type-list
            cinder type-delete secret
            cinder type-list
            """
        )
        self.assertRegex(said, r"volume_backend_name : file")
        self.assertRegex(said, rf"{kind} \| secret \| \{{'multiattach': '<is> True'\}}")

    def test_cinder_command_type_access_calls_work(self):
        said = self.shell("cinder type-create --is-public False hidden")
        kind = re.search(UUID, said)[0]
        said = self.shell(
            f"""
            cinder type-access-add --volume-type hidden --project-id {PROJECT}
            cinder type-access-list --volume-type hidden
            cinder type-access-remove --volume-type hidden --project-id {PROJECT}
            cinder type-access-list --volume-type hidden
            """
        )
        self.assertEqual([(kind, PROJECT)], re.findall(rf"\| ({UUID}) \| ({PROJECT}) \|", said))

    def test_cinder_command_default_type_calls_work(self):
        said = self.shell(
            f"""
            cinder type-create gold
            cinder --os-volume-api-version 3.62 default-type-set gold {PROJECT}
            cinder --os-volume-api-version 3.62 default-type-list
            cinder --os-volume-api-version 3.62 default-type-list --project-id {PROJECT}
            cinder --os-volume-api-version 3.62 default-type-unset {PROJECT}
            cinder --os-volume-api-version 3.62 default-type-list
            """
        )
        self.assertRegex(said, rf"{PROJECT} +\| {UUID}|{UUID} +\| {PROJECT}")

    def test_cinder_command_qos_calls_work(self):
        self.shell("cinder type-create fast")
        said = self.shell("cinder qos-create gold consumer=front-end total_iops_sec=500")
        gold = cell(said, "id")
        kind = re.search(UUID, self.shell("cinder type-list | grep fast"))[0]
        said = self.shell(
            f"""
            cinder qos-key {gold} set read_iops_sec=100
            cinder qos-key {gold} unset total_iops_sec
            cinder qos-show {gold}
            cinder qos-associate {gold} {kind}
            cinder qos-get-association {gold}
            cinder qos-disassociate {gold} {kind}
            cinder qos-associate {gold} {kind}
            cinder qos-disassociate-all {gold}
            cinder qos-associate {gold} {kind}
            cinder qos-list
            cinder qos-delete --force True {gold}
            cinder qos-list
            """
        )
        self.assertRegex(said, r"specs +\| read_iops_sec : 100 +\|")
        self.assertRegex(said, rf"volume_type +\| fast \| {kind}")
        self.assertEqual(1, len(re.findall(rf"\| {gold} \| gold \|", said)))

    def test_cinder_command_type_filters_work(self):
        said = self.shell(
            """
            cinder --os-volume-api-version 3.33 list-filters --resource volume_type
            cinder type-create --description d gold
            cinder type-key gold set multiattach='<is> True'
            cinder type-create silver
            cinder --os-volume-api-version 3.52 type-list --filters extra_specs={multiattach:'<is> True'}
            """  # noqa: E501  a command as it is typed
        )
        self.assertRegex(said, r"is_public, extra_specs|is_public +\|")
        self.assertRegex(said, rf"\| {UUID} \| gold +\| d")
        self.assertNotRegex(said.splitlines()[-2], "silver")


@full_only("clients")
class OpenStackCommandTest(commands.Case):
    def test_openstack_command_type_calls_work(self):
        said = self.shell(
            """
            openstack volume type create --private --multiattach --property k=v hidden \\
                -f value -c properties
            openstack volume type set --property k=w --description d --public hidden
            openstack volume type show hidden --encryption-type -f value -c encryption \\
                -c is_public -c properties
            openstack volume type unset --property k hidden
            openstack volume type list --long -f value -c Name -c "Is Public" -c Properties
            openstack volume type list --encryption-type -f value -c Name -c Encryption
            openstack volume type delete hidden
            openstack volume type list -f value
            """
        )
        self.assertEqual(
            [
                "{'multiattach': '<is> True', 'k': 'v'}",
                "{}",
                "True",
                "{'k': 'w', 'multiattach': '<is> True'}",
                "hidden True {'multiattach': '<is> True'}",
                "hidden {}",
            ],
            [line.replace("{'k': 'v', 'multiattach': '<is> True'}",
                          "{'multiattach': '<is> True', 'k': 'v'}")
                 .replace("{'multiattach': '<is> True', 'k': 'w'}",
                          "{'k': 'w', 'multiattach': '<is> True'}")
             for line in said.splitlines()],
        )  # fmt: skip

    def test_openstack_command_type_encryption_is_refused_with_message(self):
        said = self.shell(
            """
            openstack volume type create gold -f value -c name
            openstack volume type set gold --encryption-provider luks 2>&1 || echo refused
            """
        )
        self.assertIn("This service has no encrypted volumes", said)
        self.assertEqual("refused", said.splitlines()[-1])

    def test_openstack_command_qos_calls_work(self):
        said = self.shell(
            """
            openstack volume type create fast -f value -c name
            openstack volume qos create --property total_iops_sec=500 gold \\
                -f value -c consumer -c properties
            openstack volume qos set --property read_iops_sec=100 gold
            openstack volume qos unset --property total_iops_sec gold
            openstack volume qos associate gold fast
            openstack volume qos show gold -f value -c associations -c properties
            openstack volume qos list -f value -c Name -c Consumer -c Associations
            openstack volume qos disassociate --volume-type fast gold
            openstack volume qos associate gold fast
            openstack volume qos disassociate --all gold
            openstack volume qos associate gold fast
            openstack volume qos delete --force gold
            openstack volume qos list -f value
            """
        )
        self.assertEqual(
            [
                "fast",
                "both",
                "{'total_iops_sec': '500'}",
                "['fast']",
                "{'read_iops_sec': '100'}",
                "gold both ['fast']",
            ],
            said.splitlines(),
        )

    def test_openstack_command_type_filters_work(self):
        said = self.shell("openstack block storage resource filter show volume_type -f value")
        self.assertIn("extra_specs", said)


class CinderClientTest(libraries.Case):
    connect = libraries.CinderClientTest.connect

    def setUp(self):
        super().setUp()
        self.client = self.connect("3.71")

    def test_cinderclient_type_access_calls_work(self):
        kind = self.client.volume_types.create("hidden", is_public=False)
        access = self.client.volume_type_access
        access.add_project_access(kind, "b" * 32)
        with self.assertRaisesRegex(exceptions.ClientException, "HTTP 409"):
            access.add_project_access(kind, "b" * 32)
        (one,) = access.list(kind)
        self.assertEqual("b" * 32, one.project_id)
        access.remove_project_access(kind, "b" * 32)
        with self.assertRaises(exceptions.NotFound):
            access.remove_project_access(kind, "b" * 32)

    def test_cinderclient_default_type_calls_work(self):
        kind = self.client.volume_types.create("gold")
        defaults = self.client.default_types
        self.assertEqual(kind.id, defaults.create("gold", PROJECT).volume_type_id)
        self.assertEqual("gold", self.client.volume_types.default().name)
        self.assertEqual("gold", self.client.volumes.create(1).volume_type)
        (one,) = defaults.list()
        self.assertEqual(PROJECT, one.project_id)
        defaults.delete(PROJECT)
        self.assertEqual([], defaults.list())

    def test_cinderclient_qos_calls_work(self):
        qos = self.client.qos_specs
        one = qos.create("gold", {"consumer": "both", "a": "1"})
        qos.set_keys(one.id, {"b": "2"})
        qos.unset_keys(one.id, ["a"])
        self.assertEqual({"b": "2"}, qos.get(one).specs)
        kind = self.client.volume_types.create("fast")
        qos.associate(one, kind.id)
        self.assertEqual(["fast"], [association.name for association in qos.get_associations(one)])
        qos.disassociate(one, kind.id)
        qos.associate(one, kind.id)
        with self.assertRaises(exceptions.BadRequest):
            qos.delete(one)
        qos.disassociate_all(one)
        qos.delete(one)
        self.assertEqual([], qos.list())

    def test_cinderclient_type_encryption_is_refused(self):
        kind = self.client.volume_types.create("gold")
        encryption = self.client.volume_encryption_types
        self.assertEqual([], encryption.list())
        self.assertFalse(hasattr(encryption.get(kind), "provider"))
        with self.assertRaisesRegex(exceptions.BadRequest, "no encrypted volumes"):
            encryption.create(kind, {"provider": "luks", "control_location": "front-end"})
        with self.assertRaises(exceptions.NotFound):
            encryption.delete(kind)


class SdkTest(libraries.Case):
    def setUp(self):
        super().setUp()
        self.storage = sdk.block_storage(self, self.process.url)

    def test_sdk_type_access_calls_work(self):
        storage = self.storage
        kind = storage.create_type(name="hidden", is_public=False)
        storage.add_type_access(kind, "b" * 32)
        (one,) = storage.get_type_access(kind)
        self.assertEqual("b" * 32, one["project_id"])
        storage.remove_type_access(kind, "b" * 32)
        self.assertEqual([], storage.get_type_access(kind))

    def test_sdk_default_type_calls_work(self):
        storage = self.storage
        kind = storage.create_type(name="gold")
        self.assertEqual(kind.id, storage.set_default_type("b" * 32, kind.id).volume_type_id)
        self.assertEqual(kind.id, storage.show_default_type("b" * 32).volume_type_id)
        self.assertEqual(
            ["b" * 32], [default_type.project_id for default_type in storage.default_types()]
        )
        storage.unset_default_type("b" * 32)
        self.assertEqual([], list(storage.default_types()))

    def test_sdk_qos_calls_work(self):
        requirements.require_release(self, "openstacksdk", "4.14")
        storage = self.storage
        one = storage.create_qos_spec(name="gold", consumer="both", a="1")
        self.assertEqual({"a": "1"}, one.specs)
        storage.update_qos_spec(one, b="2")
        storage.delete_qos_spec_metadata(one, ["a"])
        found = storage.find_qos_spec("gold", ignore_missing=False)
        self.assertEqual({"b": "2"}, found.specs)
        kind = storage.create_type(name="fast")
        storage.associate_qos_spec(one, kind.id)
        self.assertEqual(
            ["fast"],
            [spec_association.name for spec_association in storage.qos_spec_associations(one)],
        )
        storage.disassociate_qos_spec(one, kind.id)
        storage.disassociate_all_qos_spec(one)
        storage.delete_qos_spec(one)
        self.assertEqual([], list(storage.qos_specs()))

    def test_sdk_type_encryption_is_refused(self):
        storage = self.storage
        kind = storage.create_type(name="gold")
        self.assertIsNone(storage.get_type_encryption(kind).provider)
        with self.assertRaisesRegex(sdk_exceptions.BadRequestException, "no encrypted volumes"):
            storage.create_type_encryption(kind, provider="luks", control_location="front-end")
