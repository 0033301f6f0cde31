# SPDX-License-Identifier: Apache-2.0
"""Backstores of LIO, in a fake configfs."""

from pathlib import Path

import fixtures

from attachd.drivers.lvm import backstores
from attachd.tests.fixtures import fake_lvm


class BackstoreTest(fixtures.TestWithFixtures):
    def setUp(self):
        super().setUp()
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.device = folder / "device"
        self.device.touch()
        self.tree = fake_lvm.FakeTree(folder / "configfs")
        self.tree.boot()

    def stores(self):
        for kind in backstores.KINDS:
            folder = backstores.directory(self.tree.root, "lvm", kind)
            yield backstores.Backstore(self.tree, kind, folder / "volume")

    def test_backstore_is_listed_if_it_serves_its_device(self):
        for store in self.stores():
            self.assertEqual(frozenset(), store.parts(self.device))
            store.show(self.device, discards=True)
            self.assertEqual({store.kind.part}, store.parts(self.device))
            incomplete = {f"{store.kind.part}, incomplete"}
            self.assertEqual(incomplete, store.parts(self.device.with_name("other")))
            (store.path / "attrib" / "emulate_caw").write_text("1\n")
            self.assertEqual(incomplete, store.parts(self.device))

    def test_only_writers_may_discard(self):
        for store in self.stores():
            for discards in (True, False):
                store.show(self.device, discards=discards)
                expected = discards and store.kind is backstores.WRITERS
                self.assertEqual(
                    f"{expected:d}", self.tree.read(store.path / "attrib/emulate_tpu")
                )

    def test_interrupted_backstore_is_made_again(self):
        for store in self.stores():
            store.show(self.device, discards=True)
            (store.path / "enable").write_text("0\n")
            store.show(self.device, discards=True)
            self.assertEqual({store.kind.part}, store.parts(self.device))

    def test_missing_device_is_an_error_and_no_file(self):
        self.device.unlink()
        for store in self.stores():
            self.assertRaises(FileNotFoundError, store.show, self.device, discards=True)
            self.assertEqual("", self.tree.read(store.path / "control"))

    def test_backends_of_one_machine_have_directories_of_their_own(self):
        names = ("lvm", "lvm2")
        found = {backstores.directory(self.tree.root, name, backstores.READERS) for name in names}
        self.assertEqual(2, len(found))
