# SPDX-License-Identifier: Apache-2.0
"""Tests of fixtures/consistency.py: it finds each kind of difference, and no others."""

from pathlib import Path
import uuid

import fixtures
import testtools

from attachd.drivers import base, file
from attachd.drivers.tgt.driver import TgtDriver
from attachd.tests.fixtures import consistency, databases, db_rows, initiators, tgtd
from attachd.tests.unit.drivers import configured


class WithTgtTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.url = databases.use(self)
        self.tgtd = self.useFixture(tgtd.Tgtd(self))
        self.driver = configured.driver(TgtDriver, **self.tgtd.options)
        self.driver.setup()
        self.host = self.useFixture(initiators.IscsiHost(self, "a"))
        self.volume = self.create_volume()
        self.ref = base.VolumeRef(self.volume["id"], 1)
        self.row = self.attached(self.host.connector)
        self.assertEqual([], self.found())

    def create_volume(self):
        row = db_rows.add_volume(host="here@tgt#tgt")
        self.driver.create(base.VolumeRef(row["id"], 1))
        return row

    def attached(self, connector, mode="rw", state="attached"):
        row = db_rows.add_attachment(self.ref.id, state, connector=connector, mode=mode)
        info = self.driver.grant(self.ref, self.export(row))
        db_rows.change_attachment(row["id"], connection_info=info)
        return {**row, "connection_info": info}

    @staticmethod
    def export(row):
        return base.Export(row["id"], row["connector"], row["mode"], row["secret"])

    def found(self):
        return consistency.compare_with_tgt(self.url, self.tgtd)

    def assert_found(self, *patterns):
        found = self.found()
        self.assertEqual(len(patterns), len(found), found)
        for pattern, item in zip(patterns, found, strict=True):
            self.assertIn(pattern, item)

    def test_compare_with_tgt_of_readers_and_writers_finds_nothing(self):
        for number, mode in enumerate(("rw", "ro", "ro")):
            self.attached({"initiator": f"iqn.2026-01.test:{number}"}, mode)
        self.host.log_in(self.row["connection_info"])
        self.assert_found()

    def test_compare_with_tgt_finds_orphan_export(self):
        db_rows.remove_attachment(self.row["id"])
        self.assert_found("has no attachment", "has no attachment")

    def test_compare_with_tgt_finds_missing_export(self):
        self.driver.revoke(self.ref, self.export(self.row), [])
        self.assert_found("is missing for", "account")

    def test_compare_with_tgt_allows_both_for_unfinished_rows(self):
        db_rows.change_attachment(self.row["id"], state="connecting", connection_info=None)
        db_rows.change_volume(self.ref.id, status="attaching", attach_status="attaching")
        self.assert_found()
        self.assertEqual(
            [f"attachment {self.row['id']} is connecting"], consistency.find_unfinished(self.url)
        )
        self.driver.revoke(self.ref, self.export(self.row), [])
        self.assert_found()

    def test_compare_with_tgt_finds_extra_and_missing_initiators_and_accounts(self):
        (target,) = self.tgtd.targets()
        name = self.host.connector["initiator"]
        for operation, initiator in (("unbind", name), ("bind", "iqn.2026-01.test:x")):
            self.tgtd.adm(
                "--op", operation, "--mode", "target", "--tid", f"{target.tid}",
                "--initiator-name", initiator,
            )  # fmt: skip
        self.tgtd.adm("--op", "new", "--mode", "account", "--user", "u", "--password", "p" * 12)
        self.assert_found(f"{name} is missing", "test:x has no attachment", "u has no attachment")

    def test_compare_with_tgt_finds_foreign_session(self):
        self.host.log_in(self.row["connection_info"])
        other = {"initiator": "iqn.2026-01.test:other"}
        db_rows.change_attachment(self.row["id"], connector=other)
        self.assertIn(f"session of {self.host.connector['initiator']}", "\n".join(self.found()))

    def test_compare_with_tgt_finds_file_without_volume_and_volume_without_file(self):
        lost = self.create_volume()
        folder = Path(self.tgtd.options["tgt_volumes_dir"])
        (folder / lost["id"]).rename(folder / "stranger")
        self.assert_found("file stranger", f"volume {lost['id']} has no file")

    def test_compare_with_tgt_finds_wrong_mode_size_and_status(self):
        info = self.row["connection_info"]
        data = {**info["data"], "target_iqn": f"{info['data']['target_iqn']}-ro"}
        db_rows.change_attachment(
            self.row["id"], mode="ro", connection_info={**info, "data": data}
        )
        db_rows.change_volume(self.ref.id, size_gib=2, status="available")
        found = "\n".join(self.found())
        for text in ("has no attachment", "-ro is missing", "bytes, not 2 GiB", "says available"):
            self.assertIn(text, found)


class WithFilesTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.url = databases.use(self)
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.driver = configured.driver(
            file.FileDriver, file_folder=f"{self.folder}", file_loop_devices="never"
        )
        self.driver.setup()
        self.ref = base.VolumeRef(db_rows.add_volume()["id"], 1)
        self.driver.create(self.ref)
        self.row = db_rows.add_attachment(self.ref.id, "attached")
        self.export = base.Export(self.row["id"], self.row["connector"])
        self.driver.grant(self.ref, self.export)

    def found(self):
        return consistency.compare_with_files(self.url, self.folder)

    def test_compare_with_files_of_equal_state_finds_nothing(self):
        self.assertEqual([], self.found())

    def test_compare_with_files_finds_missing_and_orphan_links(self):
        stranger = base.Export(f"{uuid.uuid4()}", {})
        self.driver.grant(self.ref, stranger)
        self.driver.revoke(self.ref, self.export, [stranger])
        link = self.folder / "exports" / self.ref.id / stranger.attachment_id
        self.assertEqual(
            [f"attachment {self.row['id']} has no link", f"link {link} has no attachment"],
            self.found(),
        )

    def test_compare_with_files_finds_link_to_other_file(self):
        link = self.folder / "exports" / self.ref.id / self.row["id"]
        link.unlink()
        link.write_bytes(b"")
        self.assertEqual([f"link {link} is not of volume {self.ref.id}"], self.found())
