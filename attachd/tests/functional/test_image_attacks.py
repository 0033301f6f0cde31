# SPDX-License-Identifier: Apache-2.0
"""Images that lead to other files, lie about themselves, or exhaust the manager.

Each of them is an image of a fake Glance, of which a volume of 1 GiB of the driver ``file`` is to
be made.  The volume ends in error; a file of this machine with a secret, to which the images lead,
is in no answer and in no file of the backend.
"""

from collections.abc import Callable
import gzip
import io
import os
from pathlib import Path
import resource
import struct
import subprocess
import time
from typing import Any

from oslo_config import cfg

from attachd import exception
from attachd.drivers import base
from attachd.drivers.file import FileDriver
from attachd.manager.flow_runner import FlowFailed, run
from attachd.manager.flows import volume as volume_flows
from attachd.tests.fixtures import conf_fixture, fake_glance, lifetime, requirements

MIB, GIB = 2**20, 2**30
SECRET = b"the secret of this machine\n" * 1000
_VOLUME = "11111111-2222-4333-8444-555555555555"

Make = Callable[["AttackCase"], tuple[bytes, dict[str, Any]]]
ATTACKS: dict[str, Make] = {}


def attack(make: Make) -> Make:
    """Register a function that returns the data and the fields of an image."""
    ATTACKS[make.__name__] = make
    return make


class AttackCase(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        requirements.require_tool(self, "qemu-img")
        self.folder = Path(lifetime.temp_dir(self))
        self.secret = self.folder / "secret"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o644)
        self.folder.chmod(0o755)
        self.glance = fake_glance.use(self)
        conf_fixture.override(self, "conversion_dir", f"{self.folder}/new", group="glance")
        conf_fixture.override(self, "conversion_free_space", 0, group="glance")
        conf_fixture.override(self, "conversion_timeout", 20, group="glance")  # the subject
        conf_fixture.override(self, "transfer_retries", 0, group="glance")
        conf = cfg.ConfigOpts()
        conf([], project="attachd", default_config_files=[])
        conf.register_opts(FileDriver.OPTIONS, group="files")
        conf.set_override("file_folder", f"{self.folder}/files", group="files")
        conf.set_override("file_loop_devices", "never", group="files")
        self.driver = FileDriver("files", conf)
        self.driver.setup()

    def qemu_img(self, *arguments: str) -> None:
        """Run qemu-img in the folder of this test."""
        subprocess.run(
            ["qemu-img", *arguments], check=True, cwd=self.folder, stdout=subprocess.DEVNULL
        )

    def made(self, disk_format: str, *options: str, size: str = "64M") -> bytearray:
        """Return an empty image of qemu-img."""
        self.qemu_img("create", "-q", "-f", disk_format, *options, "image", size)
        return bytearray((self.folder / "image").read_bytes())

    def import_image(self, image: str) -> None:
        """Make a volume of an image, as a manager does."""
        flow = volume_flows.build_import(self.driver, base.VolumeRef(_VOLUME, 1), image)
        run(flow, {})

    def find_secret(self) -> list[Path]:
        """Return the files that have the secret, besides the one to which the images lead."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return [path for path in files if path != self.secret and _has_secret(path)]


def _has_secret(path: Path) -> bool:
    if path.name in {"image", "other"}:
        return False
    with path.open("rb") as file:
        return any(SECRET[:100] in file.read(MIB) for _ in range(4))


class AttacksTest(AttackCase):
    """The images of the register; each test has all of them, as they need the same setup."""

    def test_hostile_images_are_refused_and_leave_nothing(self):
        self.assertGreaterEqual(len(ATTACKS), 40)
        for name, make in ATTACKS.items():
            with self.subTest(name):
                data, fields = make(self)
                fields = {"disk_format": "qcow2", **fields}
                image = self.glance.add(bytes(data), **fields)
                before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
                with self.assertRaises(FlowFailed) as caught:
                    self.import_image(image)
                self.assertIsInstance(
                    caught.exception.cause,
                    exception.ImageUnacceptable | exception.InvalidInput,
                    f"{caught.exception.cause!r}",
                )
                self.assertTrue(caught.exception.clean)
                self.assertNotIn("secret of", f"{caught.exception}")
                self.assertEqual({}, dict(self.driver.list_volumes()))
                self.assertEqual([], self.find_secret())
                self.assertEqual([], list((self.folder / "new").glob("*")))
                self.assertLess(time.monotonic() - started, 60)  # slow machines
                after = resource.getrusage(resource.RUSAGE_SELF)
                self.assertLess(after.ru_maxrss - before.ru_maxrss, 64 * 1024)

    def test_harmless_image_of_each_format_is_imported(self):
        for disk_format in ("qcow2", "vmdk", "vdi", "vhdx"):
            with self.subTest(disk_format):
                image = self.glance.add(bytes(self.made(disk_format)), disk_format=disk_format)
                self.import_image(image)
                self.driver.delete(base.VolumeRef(_VOLUME, 1))


# References to other files, qcow2.


@attack
def qcow2_backing_file(case):
    """The secret is what the image lies over."""
    return case.made("qcow2", "-b", f"{case.secret}", "-F", "raw"), {}


@attack
def qcow2_backing_passwd(case):
    return case.made("qcow2", "-b", "/etc/passwd", "-F", "raw"), {}


@attack
def qcow2_backing_relative(case):
    return case.made("qcow2", "-u", "-b", "../secret", "-F", "raw"), {}


@attack
def qcow2_backing_json(case):
    name = f'json:{{"driver":"raw","file":{{"driver":"file","filename":"{case.secret}"}}}}'
    return case.made("qcow2", "-u", "-b", name, "-F", "raw"), {}


@attack
def qcow2_backing_nbd(case):
    return case.made("qcow2", "-u", "-b", "nbd://127.0.0.1:10809", "-F", "raw"), {}


@attack
def qcow2_backing_http(case):
    return case.made("qcow2", "-u", "-b", "http://127.0.0.1/secret", "-F", "raw"), {}


@attack
def qcow2_backing_itself(case):
    return case.made("qcow2", "-u", "-b", "/proc/self/fd/5", "-F", "qcow2"), {}


@attack
def qcow2_backing_device(case):
    return case.made("qcow2", "-u", "-b", "/dev/vda", "-F", "raw"), {}


@attack
def qcow2_data_file(case):
    case.qemu_img("create", "-q", "-f", "raw", "other", "64M")
    return case.made("qcow2", "-o", "data_file=other,data_file_raw=on"), {}


@attack
def qcow2_data_file_secret(case):
    data, _fields = qcow2_data_file(case)
    return data.replace(b"other", f"{case.secret}".encode()[:5]), {}


@attack
def qcow2_data_file_bit_alone(case):
    data = case.made("qcow2")
    data[79] |= 4
    return data, {}


# Lies in the header of qcow2.


def _patched(case, offset, content, disk_format="qcow2", **fields):
    data = case.made(disk_format)
    data[offset : offset + len(content)] = content
    return data, {"disk_format": disk_format, **fields}


@attack
def qcow2_unknown_feature(case):
    return _patched(case, 72, struct.pack(">Q", 1 << 40))


@attack
def qcow2_encrypted_aes(case):
    return _patched(case, 32, struct.pack(">I", 1))


@attack
def qcow2_encrypted_luks(case):
    return _patched(case, 32, struct.pack(">I", 2))


@attack
def qcow2_version_1(case):
    return _patched(case, 4, struct.pack(">I", 1))


@attack
def qcow2_version_9(case):
    return _patched(case, 4, struct.pack(">I", 9))


@attack
def qcow2_larger_than_volume(case):
    return case.made("qcow2", size="2G"), {}


@attack
def qcow2_huge(case):
    return case.made("qcow2", "-o", "cluster_size=2M", size="1P"), {}


@attack
def qcow2_size_of_all_bits(case):
    return _patched(case, 24, b"\xff" * 8)


@attack
def qcow2_huge_table(case):
    return _patched(case, 36, struct.pack(">I", 0x7FFFFFFF))


@attack
def qcow2_table_outside(case):
    return _patched(case, 40, struct.pack(">Q", 1 << 50))


@attack
def qcow2_tiny_clusters(case):
    return _patched(case, 20, struct.pack(">I", 1))


@attack
def qcow2_huge_clusters(case):
    return _patched(case, 20, struct.pack(">I", 63))


@attack
def qcow2_table_of_clusters_damaged(case):
    return _patched(case, 3 * 65536, b"\xff" * 1024)


@attack
def qcow2_clusters_beyond_end(case):
    return _patched(case, 3 * 65536, struct.pack(">Q", (1 << 63) | (1 << 40)) * 64)


@attack
def qcow2_truncated(case):
    data, _fields = _filled(case)
    return data[: len(data) // 2], {}


@attack
def qcow2_header_alone(case):
    return case.made("qcow2")[:104], {}


@attack
def qcow2_corrupt_compressed_clusters(case):
    data, _fields = _filled(case, "-c")
    for offset in range(5 * 65536, len(data), 512):
        data[offset : offset + 8] = b"\xff" * 8
    return data, {}


@attack
def qcow2_bomb(case):
    """Each cluster is the same one: 64 KiB become the whole disk."""
    data, _fields = _filled(case)
    (first_table,) = struct.unpack_from(">Q", data, 40)
    (entry,) = struct.unpack_from(">Q", data, first_table)
    table = entry & 0x00FFFFFFFFFFFE00
    (cluster,) = struct.unpack_from(">Q", data, table)
    data[table : table + 65536] = struct.pack(">Q", cluster) * 8192
    return data, {}


def _filled(case, *options):
    """Return an image with data."""
    (case.folder / "other").write_bytes(os.urandom(MIB) + bytes(range(256)) * 32768)
    case.qemu_img("convert", "-f", "raw", "-O", "qcow2", *options, "other", "image")
    return bytearray((case.folder / "image").read_bytes()), {}


# Other formats.


@attack
def vmdk_flat_extent(case):
    text = _descriptor(f'RW 54 FLAT "{case.secret}" 0')
    return text.encode().ljust(65536, b"\0"), {"disk_format": "vmdk"}


@attack
def vmdk_flat_extent_embedded(case):
    """A sparse image whose descriptor names another file."""
    data = case.made("vmdk")
    text = _descriptor(f'RW 54 FLAT "{case.secret}" 0').encode()
    return data[:512] + text.ljust(20 * 512, b"\0") + data[512 * 21 :], {"disk_format": "vmdk"}


@attack
def vmdk_parent(case):
    data = case.made("vmdk")
    start = data.index(b"# Disk DescriptorFile")
    parent = f'parentCID=1\nparentFileNameHint="{case.secret}"'
    text = _descriptor("").replace("parentCID=ffffffff", parent)
    data[start : start + len(text)] = text.encode()
    return data, {"disk_format": "vmdk"}


def _descriptor(extent):
    return (
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n"
        f'createType="monolithicFlat"\n\n# Extent description\n{extent}\n'
    )


@attack
def vmdk_huge_descriptor(case):
    return _patched(case, 36, struct.pack("<Q", 1 << 40), "vmdk")


@attack
def vmdk_larger_than_volume(case):
    return case.made("vmdk", size="2G"), {"disk_format": "vmdk"}


@attack
def vdi_larger_than_volume(case):
    return case.made("vdi", size="2G"), {"disk_format": "vdi"}


@attack
def vdi_huge_table(case):
    return _patched(case, 0x180, struct.pack("<I", 0xFFFFFFFF), "vdi")


@attack
def vhdx_damaged(case):
    return _patched(case, 0x30000, b"\xff" * 65536, "vhdx")


@attack
def vhd_size_of_all_bits(case):
    data = case.made("vpc")
    data[40:56] = b"\xff" * 16
    return data, {"disk_format": "vhd"}


@attack
def qed(case):
    return case.made("qed"), {"disk_format": "vhd"}


# Lies of the Image service, or of who has made the record.


@attack
def raw_that_is_qcow2(case):
    return case.made("qcow2", "-b", f"{case.secret}", "-F", "raw"), {"disk_format": "raw"}


@attack
def raw_that_is_vmdk(case):
    return case.made("vmdk"), {"disk_format": "raw"}


@attack
def raw_that_is_luks(_case):
    return b"LUKS\xba\xbe\0\1".ljust(MIB, b"\0"), {"disk_format": "raw"}


@attack
def iso_that_is_qcow2(case):
    return case.made("qcow2"), {"disk_format": "iso"}


@attack
def qcow2_that_is_raw(_case):
    return os.urandom(MIB), {}


@attack
def qcow2_that_is_vmdk(case):
    return case.made("vmdk"), {}


@attack
def qcow2_that_is_gzip(case):
    packed = io.BytesIO()
    with gzip.open(packed, "wb") as file:
        file.write(bytes(case.made("qcow2")))
    return packed.getvalue(), {}


@attack
def two_formats_at_once(case):
    """A qcow2 header, and a master boot record."""
    return _patched(case, 510, b"\x55\xaa")


@attack
def format_of_path(_case):
    return b"data", {"disk_format": "../../etc/passwd"}


@attack
def wrong_hash(_case):
    return b"data" * 1000, {"disk_format": "raw", "os_hash_value": "0" * 128}


@attack
def unknown_hash(_case):
    return b"data", {"disk_format": "raw", "os_hash_algo": "crc", "checksum": "0"}


@attack
def more_than_named(_case):
    return os.urandom(3 * MIB), {"disk_format": "raw", "size": MIB}


@attack
def negative_size(_case):
    return b"data", {"disk_format": "raw", "size": -5}
