# SPDX-License-Identifier: Apache-2.0
"""Connections for programs that connect by themselves, read back by their parsers."""

from importlib import metadata
import json
from pathlib import Path
import unittest
from urllib import parse
from xml.etree import ElementTree as ET

from lxml import etree as lxml_etree  # type: ignore[import-untyped]

from attachd.cli import connection_formats
from attachd.cli.connection_formats import INITIATOR, SECRET
from attachd.db import models
from attachd.tests.fixtures.printed_connections import FORMATS
from attachd.tests.unit.cli.programs import ONE, Case

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
PASSWORD = "kystSioDKHSV2j9y"
IQN = "iqn.2026-01.internal.attachd:volume-1"
ISCSI = {
    "driver_volume_type": "iscsi",
    "access_mode": "rw",
    "auth_method": "CHAP",
    "auth_username": "u1",
    "auth_password": PASSWORD,
    "target_portal": "192.0.2.1:3260",
    "target_iqn": IQN,
    "target_lun": 1,
    "discard": True,
}
RBD = {
    "driver_volume_type": "rbd",
    "access_mode": "ro",
    "name": "volumes/volume-1",
    "hosts": ["192.0.2.1", "2001:db8::1"],
    "ports": ["6789", "6789"],
    "auth_enabled": True,
    "auth_username": "attachd-1",
    "keyring": f"[client.attachd-1]\nkey = {PASSWORD}\n",
}
NFS = {
    "driver_volume_type": "nfs",
    "access_mode": "rw",
    "export": "192.0.2.1:/srv/share",
    "name": "volume-1",
    "format": "raw",
}
NVME = {
    "driver_volume_type": "nvmeof",
    "access_mode": "rw",
    "target_nqn": "nqn.2026-01.internal.attachd:volume-1",
    "portals": [["192.0.2.1", 4420, "tcp"], ["2001:db8::1", 4420, "tcp"]],
}
DOMAIN = """<domain type='qemu'><name>n</name><memory>65536</memory><os><type>hvm</type></os>
<devices>{}</devices></domain>"""


class FormatsTest(Case):
    def show(self, form, info, **more):
        self.cloud.one = {**ONE, "connection_info": info}
        out = self.run_it("attachment-show", "a1", "--format", form, **more)
        self.assertNotIn(PASSWORD, out)
        return out.strip()

    def test_formats_of_cliff_stay(self):
        names = set(metadata.entry_points(group="cliff.formatter.show").names)
        found = set(metadata.entry_points(group=connection_formats.GROUP).names)
        self.assertEqual(names | FORMATS.keys() | {"text"}, found)

    def test_url_has_a_place_for_the_secret(self):
        self.assertEqual(
            f"iscsi://u1%{SECRET}@192.0.2.1:3260/{IQN}/1", url := self.show("url", ISCSI)
        )
        self.assertEqual(("u1%SECRET@192.0.2.1:3260", f"/{IQN}/1"), parse.urlsplit(url)[1:3])
        self.assertEqual("nfs://192.0.2.1/srv/share/volume-1?uid=0&gid=0", self.show("url", NFS))
        self.assertEqual(
            f"rbd:volumes/volume-1:id=attachd-1:key={SECRET}"
            r":mon_host=192.0.2.1\:6789\;[2001\:db8\:\:1]\:6789",
            self.show("url", RBD),
        )

    def test_url_has_a_line_for_each_path(self):
        nqn = NVME["target_nqn"]
        self.assertEqual(
            [f"nvme+tcp://192.0.2.1:4420/{nqn}", f"nvme+tcp://[2001:db8::1]:4420/{nqn}"],
            self.show("url", NVME).splitlines(),
        )
        portals = ["192.0.2.1:3260", "192.0.2.2:3260"]
        paths = {"target_portals": portals, "target_iqns": [IQN] * 2, "target_luns": [1, 1]}
        self.assertEqual(2, len(self.show("url", {**ISCSI, **paths}).splitlines()))

    def test_connection_without_secret_for_its_reader_has_the_place_too(self):
        for info in (ISCSI, RBD):
            shown = {
                name: value
                for name, value in info.items()
                if name not in {"auth_password", "keyring"}
            }
            for form in FORMATS:
                self.assertEqual(self.show(form, info), self.show(form, shown))

    def test_qemu_prints_blockdev_with_reference_to_secret(self):
        shown = json.loads(self.show("qemu", ISCSI))
        self.assertEqual(("volume", "iscsi"), (shown["node-name"], shown["driver"]))
        self.assertEqual(
            ("secret", INITIATOR), (shown["password-secret"], shown["initiator-name"])
        )
        shown = json.loads(self.show("qemu", RBD))
        self.assertEqual(("secret", True), (shown["key-secret"], shown["read-only"]))

    def test_libvirt_prints_disk_of_each_protocol(self):
        disk = ET.fromstring(self.show("libvirt", ISCSI))
        self.assertEqual(f"{IQN}/1", disk.find("source").get("name"))
        self.assertEqual(INITIATOR, disk.find("source/initiator/iqn").get("name"))
        self.assertEqual(SECRET, disk.find("source/auth/secret").get("usage"))
        self.assertIsNone(disk.find("readonly"))
        disk = ET.fromstring(self.show("libvirt", {**RBD, "secret_uuid": "1" * 8}))
        self.assertEqual("1" * 8, disk.find("source/auth/secret").get("uuid"))
        self.assertIsNotNone(disk.find("readonly"))

    @unittest.skipUnless(SCHEMA.exists(), "needs the schemas of libvirt-clients")
    def test_libvirt_disks_are_valid_in_its_schema(self):
        schema = lxml_etree.RelaxNG(lxml_etree.parse(SCHEMA))
        for info in (ISCSI, RBD, NFS, {**RBD, "secret_uuid": models.new_id()}):
            with self.subTest(info["driver_volume_type"]):
                disk = self.show("libvirt", info)
                schema.assertValid(lxml_etree.fromstring(DOMAIN.format(disk)))
                broken = disk.replace("protocol=", "protocols=")
                self.assertFalse(schema(lxml_etree.fromstring(DOMAIN.format(broken))))

    def test_format_without_connection_or_support_is_refused(self):
        for form, info, text in (
            ("url", {}, "is attaching and has no connection. Connect it first"),
            ("qemu", NVME, "be shown as qemu, but one of iscsi, nfs, rbd can"),
            ("libvirt", NVME, "cannot be shown as libvirt"),
            ("url", {"driver_volume_type": "local"}, "cannot be shown as url"),
        ):
            self.show(form, info, code=1)
            self.assertIn(text, self.said)
