# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on copies of volumes; see test_drivers.py."""

import functools
import json
import secrets
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests import concurrency
from attachd.tests.contract.driving import GIB, MIB, ZEROS, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class ClonesTest(DriverCase):
    """clone."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.Clone)

    def clone(self, source, size_gib=1) -> base.VolumeRef:
        """Copy a volume; the copy is removed with the test."""
        asked = base.VolumeRef(f"{uuid.uuid4()}", size_gib)
        notes = self.driver.clone(asked, source)
        copy = base.VolumeRef(asked.id, size_gib, json.loads(json.dumps(notes)))
        self.addCleanup(self.driver.delete, copy)
        return copy

    def written(self, *pieces) -> tuple[base.VolumeRef, base.Export, base.ConnectionInfo]:
        """Create a volume with some bytes in it, granted to a host."""
        volume, export = self.volume(), self.export()
        info = self.granted(volume, export)
        for offset, data in pieces:
            self.host().write(info, offset, data)
        return volume, export, info

    def test_clone_copies_all_bytes(self):
        host = self.host()
        first, last = secrets.token_bytes(MIB), secrets.token_bytes(64 * 1024)
        end = GIB - len(last)
        source, export, _info = self.written((5 * MIB, first), (end, last))
        self.revoked(source, export)
        info = self.granted(self.clone(source), self.export())
        self.assertEqual(GIB, host.size(info))
        self.assertEqual(first, host.read(info, 5 * MIB, len(first)))
        self.assertEqual(last, host.read(info, end, len(last)))
        for offset in (0, 5 * MIB - len(ZEROS), 6 * MIB, 512 * MIB):
            self.assertEqual(ZEROS, host.read(info, offset, len(ZEROS)))

    def test_clones_of_one_source_at_the_same_time_are_all_made(self):
        host = self.host()
        data = secrets.token_bytes(MIB)
        source, export, _info = self.written((MIB, data))
        self.revoked(source, export)
        asked = [base.VolumeRef(f"{uuid.uuid4()}", 1) for _ in range(3)]
        notes = concurrency.run_at_once(
            *(functools.partial(self.driver.clone, item, source) for item in asked)
        )
        self.assertEqual([], [note for note in notes if isinstance(note, Exception)])
        for item, note in zip(asked, notes, strict=True):
            copy, read = base.VolumeRef(item.id, 1, note), self.export()
            self.addCleanup(self.driver.delete, copy)
            self.assertEqual(data, host.read(self.granted(copy, read), MIB, len(data)))
            self.revoked(copy, read)

    def test_clone_to_larger_size_is_padded_with_zeros(self):
        host = self.host()
        source, export, _info = self.written((GIB - 4096, b"last" * 1024))
        self.revoked(source, export)
        info = self.granted(self.clone(source, 2), self.export())
        self.assertEqual(2 * GIB, host.size(info))
        self.assertEqual(b"last" * 1024, host.read(info, GIB - 4096, 4096))
        for offset in (GIB, 2 * GIB - len(ZEROS)):
            self.assertEqual(ZEROS, host.read(info, offset, len(ZEROS)))

    def test_clone_of_extended_source_has_requested_size_or_leaves_nothing(self):
        source, export, _info = self.written((0, b"data" * 1024))
        self.revoked(source, export)
        self.driver.extend(source, 2, [])
        try:
            copy = self.clone(source, 1)
        except exception.BackendError as error:
            self.assertTrue(error.final, f"{error}")
            self.assertEqual([source.id], list(self.driver.list_volumes()))
            return
        info = self.granted(copy, self.export())
        self.assertEqual(GIB, self.host().size(info))
        self.assertEqual(b"data" * 1024, self.host().read(info, 0, 4096))

    def test_writes_to_source_and_clone_are_independent(self):
        self.require_capability("online_clone")
        host = self.host()
        source, export, info = self.written((0, b"both" * 1024))
        copy = self.clone(source)
        other = self.granted(copy, self.export("b"))
        host.write(info, 0, b"mine" * 1024)
        self.assertEqual(b"both" * 1024, self.host("b").read(other, 0, 4096))
        self.host("b").write(other, 0, b"your" * 1024)
        self.assertEqual(b"mine" * 1024, host.read(info, 0, 4096))
        self.revoked(source, export)
        self.driver.delete(source)
        self.assertEqual(b"your" * 1024, self.host("b").read(other, 0, 4096))

    def test_clone_of_attached_source_keeps_its_access(self):
        self.require_capability("online_clone")
        host = self.host()
        source, export, info = self.written((0, b"kept" * 1024))
        copy = self.clone(source)
        self.assertEqual(b"kept" * 1024, host.read(info, 0, 4096))
        self.assertEqual(self.expected(source, export), set(self.exported()))
        self.granted(copy, self.export("b"))

    def test_clone_reports_growing_progress_or_none(self):
        self.host()
        source, export, _info = self.written((0, b"data" * MIB))
        self.revoked(source, export)
        reported = [0.0]
        with base.progress_scope(reported.append):
            self.clone(source)
        self.assertEqual(sorted(reported), reported)
        self.assertLessEqual(reported[-1], 1.0)

    def test_clone_again_changes_nothing(self):
        source = self.volume()
        copy = self.clone(source, 2)
        self.assertEqual(copy.provider, self.driver.clone(base.VolumeRef(copy.id, 2), source))
        self.driver.extend(copy, 3, [])

    def test_clone_of_unknown_volume_is_refused_and_leaves_nothing(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        missing = base.VolumeRef(f"{uuid.uuid4()}", 1)
        copy = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.assert_refused(self.driver.clone, copy, missing, final=True)
        self.assertEqual([], self.backend.orphans())

    def test_clone_counts_as_volume_in_report(self):
        source = self.volume()
        before = self.driver.get_stats()
        self.clone(source, 3)
        self.assertEqual(before.allocated_gib + 3, self.driver.get_stats().allocated_gib)

    def test_delete_of_source_and_clone_leaves_nothing(self):
        source = base.VolumeRef(f"{uuid.uuid4()}", 1)
        copy = base.VolumeRef(f"{uuid.uuid4()}", 1)
        self.driver.create(source)
        self.driver.clone(copy, source)
        self.driver.delete(source)
        self.driver.delete(copy)
        self.assertEqual([], self.backend.orphans())
