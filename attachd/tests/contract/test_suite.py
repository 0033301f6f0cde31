# SPDX-License-Identifier: Apache-2.0
"""The contract suite itself, on small drivers that are as the guide asks, or are not."""

import subprocess
import sys
import threading
from types import SimpleNamespace
import unittest
import uuid

from oslo_log import log

from attachd import exception
from attachd.drivers import base, file
from attachd.tests.contract import (
    backends,
    test_access,
    test_clones,
    test_drivers,
    test_manage,
    test_promises,
    test_secrets,
    test_taken_over,
)
from attachd.tests.fixtures.backends import without_abilities

LOG = log.getLogger(__name__)

_SHARED_LOCK = threading.Lock()


class _Locking(file.FileDriver):
    """Holds a lock around its checks, which a listing takes as well."""

    def __init__(self, name, conf):
        super().__init__(name, conf)
        self._lock = threading.Lock()

    def create(self, volume):
        with self._lock:
            return super().create(volume)

    def list_exports(self):
        with self._lock:
            return super().list_exports()


class _LockingProcess(_Locking):
    """As above, with one lock for all instances."""

    def __init__(self, name, conf):
        super().__init__(name, conf)
        self._lock = _SHARED_LOCK


class _Checking(file.FileDriver):
    """Makes no request, and asks for no permission, where nothing is to be done."""

    def create(self, volume):
        complete = self.list_volumes().get(volume.id) == volume.size_gib * 2**30
        return {} if complete else super().create(volume)


class _Unchecked(file.FileDriver):
    """Creates without a check."""

    def create(self, volume):
        self._volumes.path(volume.id).write_bytes(b"")
        return super().create(volume)


class _Cautious(file.FileDriver):
    """Copies no source that is exported or has grown, and says so."""

    ONLINE_CLONE = False

    def get_stats(self):
        stats = super().get_stats()
        stats.capabilities["online_clone"] = self.ONLINE_CLONE
        return stats

    def clone(self, volume, source):
        grown = self.list_volumes().get(source.id, 0) > volume.size_gib * 2**30
        if grown or list(self.list_volume_exports(source)):
            raise exception.BackendError(f"Volume {source.id} is in use or has grown.", final=True)
        return super().clone(volume, source)


class _Boasting(_Cautious):
    """Refuses the same, but declares that it does not."""

    ONLINE_CLONE = True


class _Secretive(file.FileDriver):
    """Keeps secrets, which it makes again if they are lost."""

    def create(self, volume):
        return self._keep(volume, super().create(volume))

    def grant(self, volume, export):
        return self._keep(export, super().grant(volume, export))

    def _keep(self, item, answer):
        known = item.provider_secrets or {"number": 5, "keys": [f"{uuid.uuid4()}"]}
        return base.WithSecrets(answer, known)


class _Forgetful(_Secretive):
    """Depends on secrets that were not stored, and shows them."""

    def revoke(self, volume, export, others):
        if export.provider_secrets:
            LOG.info("Revoking with %s", dict(export.provider_secrets))
            super().revoke(volume, export, others)

    def delete(self, volume):
        self.check(volume)
        super().delete(volume)

    def check(self, volume):
        if not volume.provider_secrets:
            raise exception.BackendError(f"Volume {volume.id} is not known.")


class _Pooled(file.FileDriver):
    """Has two pools, and writes down which volume is in which."""

    POOLS = ("low", "high")
    UNCOUNTED = ""

    def create(self, volume):
        (self._volumes.folder / f".{volume.id}.{volume.pool}").touch()
        return super().create(volume)

    def get_stats(self):
        sizes, names = self.list_volumes(), {p.name for p in self._volumes.folder.iterdir()}
        pools = [
            base.PoolStats(pool, 9.0, 9.0, sum(
                size / 2**30 for name, size in sizes.items()
                if f".{name}.{pool}" in names and pool != self.UNCOUNTED
            ))
            for pool in self.POOLS
        ]  # fmt: skip
        return base.BackendStats.from_pools("file", pools, {})


class _Miscounting(_Pooled):
    UNCOUNTED = "high"


class _Careless(file.FileDriver):
    """Takes what is in use, and what is a volume."""

    def manage(self, volume, reference):
        path = self.existing.folder / reference["source-name"]
        if path.exists():
            base.check_still_owner()
            path.rename(self._volumes.path(volume.id))
        return {}


class _NoObjects(backends.Files):
    """Files, none of which is an object."""

    def add_object(self, size_bytes):
        return None

    def use_object(self, reference):
        return None


class _Braggart(file.FileDriver):
    """Promises what plain files do not keep."""

    def setup(self):
        super().setup()
        self.promises = base.Promises(per_host_access=True, detach_proof=True, session_end=True)


class _Plain(file.FileDriver):
    """Has the required methods only."""

    def __new__(cls, name, conf):
        return without_abilities(file.FileDriver(name, conf), conf)


class _Files(backends.Files):
    """Lets the driver list its state, as is the default."""

    seen = backends.Backend.seen


class _HurriedFiles(_Files):
    timeout = 1  # for what surely hangs


def _run(driver: type[base.Driver], case, prefix="test_", backend=_Files):
    """Run tests of the suite on a driver."""
    result = unittest.TestResult()
    for name in unittest.TestLoader().getTestCaseNames(case):
        if name.startswith(prefix):
            test = case(name)
            test.entry = SimpleNamespace(name=driver.__name__, load=lambda: driver)
            test.make_backend = backend
            test.run(result)
    return result


def _names(result):
    """Return the tests that have failed."""
    failed = (*result.errors, *result.failures)
    return {test.id().rpartition(".")[2] for test, _text in failed}


class SuiteTest(unittest.TestCase):
    maxDiff = None

    def assert_passes(self, result):
        self.assertEqual([], [text for _test, text in (*result.errors, *result.failures)])
        self.assertGreater(result.testsRun, len(result.skipped))

    def assert_fails(self, result, expected):
        texts = [text for _test, text in (*result.errors, *result.failures)]
        self.assertIn(expected, "".join(texts))

    def test_driver_whose_repeated_create_changes_nothing_passes(self):
        self.assert_passes(_run(_Checking, test_taken_over.TakenOverTest))

    def test_driver_that_creates_without_check_fails(self):
        result = _run(_Unchecked, test_taken_over.TakenOverTest, "test_taken_over_create")
        self.assert_fails(result, "before the first check")

    def test_driver_with_lock_around_check_passes(self):
        self.assert_passes(_run(_Locking, test_taken_over.TakenOverTest))

    def test_driver_that_hangs_fails_with_line_that_hangs(self):
        result = _run(
            _LockingProcess, test_taken_over.TakenOverTest, "test_taken_over_create", _HurriedFiles
        )
        self.assert_fails(result, "TimeoutException")
        self.assert_fails(result, "with self._lock:")

    def test_driver_that_refuses_clones_it_does_not_declare_passes(self):
        result = _run(_Cautious, test_clones.ClonesTest)
        self.assert_passes(result)
        self.assertIn("online_clone", {reason.split()[-1] for _test, reason in result.skipped})

    def test_driver_without_abilities_passes(self):
        for case in (
            test_access.ConnectionKeyTest,
            test_drivers.ExportsTest,
            test_drivers.VolumesTest,
            test_taken_over.TakenOverTest,
            test_promises.PromisesTest,
        ):
            self.assert_passes(_run(_Plain, case))
        result = _run(_Plain, test_clones.ClonesTest)
        self.assertEqual(result.testsRun, len(result.skipped))

    def test_driver_whose_test_backend_has_no_objects_passes(self):
        result = _run(file.FileDriver, test_manage.ManageTest, backend=_NoObjects)
        self.assert_passes(result)
        self.assertEqual(2, len(result.skipped))

    def test_driver_that_manages_what_is_in_use_fails(self):
        failed = _names(_run(_Careless, test_manage.ManageTest))
        self.assertLessEqual(
            {
                "test_manage_of_missing_object_is_refused_finally",
                "test_object_in_use_is_refused_until_it_is_free",
                "test_object_is_extended_to_whole_gib",
                "test_volume_is_listed_and_cannot_be_managed",
            },
            failed,
        )

    def test_driver_that_counts_by_pool_passes(self):
        self.assert_passes(_run(_Pooled, test_drivers.VolumesTest))
        result = _run(_Miscounting, test_drivers.VolumesTest, "test_each_pool")
        self.assertEqual({"test_each_pool_counts_its_volumes"}, _names(result))

    def test_driver_that_keeps_secrets_passes(self):
        for case in (
            test_drivers.ExportsTest,
            test_taken_over.TakenOverTest,
            test_secrets.ProviderSecretsTest,
        ):
            self.assert_passes(_run(_Secretive, case))

    def test_driver_without_secrets_skips_their_tests(self):
        result = _run(_Plain, test_secrets.ProviderSecretsTest)
        self.assertEqual(result.testsRun, len(result.skipped))

    def test_driver_that_depends_on_lost_secrets_fails(self):
        result = _run(_Forgetful, test_secrets.ProviderSecretsTest)
        self.assertEqual(
            {
                "test_create_and_delete_without_secrets_succeed",
                "test_grant_repeated_without_secrets_gives_access",  # cannot be cleaned up
                "test_revoke_without_secrets_ends_access",
                "test_secrets_are_not_logged_listed_or_in_provider",
            },
            _names(result),
        )

    def test_driver_that_breaks_its_promises_fails(self):
        result = _run(_Braggart, test_promises.PromisesTest)
        self.assertEqual(
            {
                "test_host_with_export_of_other_volume_does_not_reach_this_one",
                "test_revoke_ends_session_that_is_open",
                "test_revoke_that_succeeds_proves_detachment",
            },
            _names(result),
        )

    def test_driver_that_refuses_clones_it_declares_fails(self):
        self.assert_fails(_run(_Boasting, test_clones.ClonesTest), "is in use")


_WITHOUT_PACKAGE = """\
import runpy, sys
sys.modules["fixtures"] = None
sys.argv[1:] = ["fake"]
runpy.run_module("attachd.tests.contract", run_name="__main__")
"""


class InstallationTest(unittest.TestCase):
    def test_suite_without_its_packages_names_the_extra_to_install(self):
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT_PACKAGE], capture_output=True, text=True, check=False
        )
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        text = "needs the package fixtures, which attachd installs with the extra 'test': pip "
        self.assertEqual(f"The contract suite {text}install 'attachd[test]'\n", done.stderr)
