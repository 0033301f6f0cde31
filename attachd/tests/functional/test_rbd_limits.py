# SPDX-License-Identifier: Apache-2.0
"""The driver rbd on a cluster at its limits: operations end in time, and the remedies work."""

import contextlib
import dataclasses
import time

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import base
from attachd.drivers.rbd import resizing
from attachd.tests.fixtures import ceph, initiators
from attachd.tests.functional.rbd_case import GIB, RbdCase, new_id
from attachd.tests.selection import full_only
from attachd.tests.unit.drivers.rbd import fake_modules
from attachd.tests.wait import wait_until

TIMEOUT = 4  # what it waits for does not come
"""rbd_timeout."""
LONGEST = 10 * TIMEOUT + resizing.START_TIMEOUT
"""Seconds in which each operation has ended, also on a slow machine."""
MIB = 2**20
FULL = "pool volumes is full. Add OSDs, raise its quota, or delete volumes."


def data_prefix(volume):
    return f"rbd_data.{volume.provider['image']['id']}."


_STATISTICS_PERIOD = 6.0
"""Seconds after which Ceph has measured its pools again."""


class LimitCase(RbdCase):
    """A driver that gives up soon, a volume with data, one without, and a host that writes."""

    def setUp(self):
        super().setUp()
        self.driver = self.new_driver(rbd_timeout=TIMEOUT)
        self.written = self.volume_with_data()
        self.empty, self.shared = self.volume(), self.volume()

    def volume_with_data(self):
        volume = self.volume()
        export = base.Export(new_id(), {})
        pool, _, name = self.driver.grant(volume, export)["data"]["name"].partition("/")
        with self.cluster.open_image(name, pool) as image:
            for number in range(8):
                image.write(b"1" * MIB, number * 4 * MIB)
        self.driver.revoke(volume, export, [])
        return volume

    @contextlib.contextmanager
    def changed(self, prefix, before, **changes):
        """Run a command of the monitors for the block, and its opposite after it."""
        self.cluster.command(prefix, **changes)
        try:
            yield
        finally:
            self.cluster.command(*before[:1], **before[1])

    def perform(self, method, *arguments):
        """Call a method of the driver; returns the text of its error, or ""."""
        began = time.monotonic()
        try:
            method(*arguments)
        except exception.BackendError as error:
            text = f"{error}"
        else:
            text = ""
        self.assertLess(time.monotonic() - began, LONGEST, text)
        return text

    def perform_all(self, driver, export):
        """Perform each operation; returns the texts of their errors, by its name."""
        new, copy = (base.VolumeRef(new_id(), 1) for _ in range(2))
        extended = dataclasses.replace(self.empty, size_gib=2)
        return {
            "create": self.perform(driver.create, new),
            "delete what is left": self.perform(driver.delete, new),
            "clone": self.perform(driver.clone, copy, self.written),
            "delete the copy": self.perform(driver.delete, copy),
            "extend": self.perform(driver.extend, self.empty, 2, []),
            "grant": self.perform(driver.grant, extended, export),
            "has_volume": self.perform(driver.has_volume, extended),
            "list_volumes": self.perform(driver.list_volumes),
            "list_exports": self.perform(driver.list_exports),
            "list_orphans": self.perform(lambda: [*driver.list_orphans()]),
            "get_stats": self.perform(driver.get_stats),
            "revoke": self.perform(driver.revoke, extended, export, []),
        }


@full_only("storage")
class FullTest(LimitCase):
    """What needs space is refused at once, and all else is done."""

    def setUp(self):
        super().setUp()
        self.cluster.require_statistics(self)
        # The monitors see it some seconds after a limit was raised.
        self.addCleanup(wait_until, lambda: not self.is_full())

    def is_full(self):
        pools = self.cluster.command("osd dump")["pools"]
        (flags,) = (pool["flags_names"] for pool in pools if pool["pool_name"] == ceph.POOL)
        return "full" in flags.split(",")

    def measure(self):
        """Return the bytes of the pool, with those that setUp() has written."""
        former = current = -1
        for _ in range(20):
            former, current = current, self.stored()
            if former == current >= 8 * MIB:
                break
            time.sleep(_STATISTICS_PERIOD)  # Nothing else shows that it has measured.
        return current

    def stored(self):
        pools = self.cluster.command("df")["pools"]
        return next(pool["stats"]["stored"] for pool in pools if pool["name"] == ceph.POOL)

    def quota(self, field, value):
        arguments = {"pool": ceph.POOL, "field": field}
        before = ("osd pool set-quota", {**arguments, "val": "0"})
        return self.changed("osd pool set-quota", before, **arguments, val=f"{value}")

    def start_writer(self, export):
        """Grant a host access to a volume, and return its program, which writes."""
        host = self.useFixture(initiators.RbdHost(self, "writer"))
        writer = host.flood(self.driver.grant(self.shared, export), 10**9, place=0)
        wait_until(lambda: self.cluster.objects(data_prefix(self.shared)))
        return writer

    @contextlib.contextmanager
    def limited(self, limit):
        """Check each operation, and the end of a host whose writes wait, at a limit."""
        export = base.Export(new_id(), {})
        writer = self.start_writer(export)
        with limit:
            wait_until(self.is_full)
            errors = self.perform_all(self.driver, base.Export(new_id(), {}))
            refused = {name: text for name, text in errors.items() if text}
            self.assertEqual({"create", "clone"}, set(refused), refused)
            self.assertEqual({True}, {FULL in text for text in refused.values()}, refused)
            self.assertEqual(2 * GIB, self.driver.list_volumes()[self.empty.id])
            # The host that writes would have to extend it.
            text = self.perform(self.driver.extend, self.shared, 2, [export])
            self.assertRegex(text, "a host that has it open, did not answer.* full")
            self.assertIsNone(writer.poll())
            self.assertEqual("", self.perform(self.driver.revoke, self.shared, export, []))
            self.assertEqual("", self.perform(self.driver.delete, self.written))
            yield
        # What it waited to write is refused.
        self.assertNotEqual(0, writer.wait(LONGEST))

    def check_remedy(self, limit):
        """Check that the space of the deleted volume is used at the limit."""
        with self.limited(limit):
            wait_until(lambda: not self.is_full())
            self.volume()

    def test_quota_of_bytes_ends_with_a_deletion(self):
        # Other tests may have left data in the pool.
        self.check_remedy(self.quota("max_bytes", self.measure() - 4 * MIB))

    def test_quota_of_objects_ends_with_a_deletion(self):
        with self.cluster.pool() as pool:
            count = sum(1 for _ in pool.list_objects())
        self.check_remedy(self.quota("max_objects", count - 2))

    def test_full_osds_delete_and_revoke(self):
        with contextlib.ExitStack() as stack:
            for name in ("nearfull", "backfillfull", "full"):
                prefix = f"osd set-{name}-ratio"
                before = (prefix, {"ratio": 0.95})
                stack.enter_context(self.changed(prefix, before, ratio=0.00001))
            with self.limited(stack.pop_all()):
                pass
        self.volume()


@full_only("storage")
class NoAnswerTest(LimitCase):
    """A cluster that serves no data says why, and everything can be repeated afterwards."""

    BY_MONITORS = frozenset({"list_exports"})
    """What needs no OSD."""

    def setUp(self):
        super().setUp()
        # It reports the states of data to the monitors.
        self.cluster.require_statistics(self)

    def check_no_answer(self, cause):
        export = base.Export(new_id(), {})
        errors = self.perform_all(self.driver, export)
        silent = {name for name, text in errors.items() if cause not in text}
        self.assertEqual(self.BY_MONITORS, silent, errors)

    def check_repeated(self):
        wait_until(lambda: not self.perform(self.driver.list_volumes))
        errors = self.perform_all(self.driver, base.Export(new_id(), {}))
        self.assertEqual({""}, set(errors.values()), errors)

    def test_paused_cluster_is_named(self):
        with self.changed("osd set", ("osd unset", {"key": "pause"}), key="pause"):
            self.check_no_answer("pauserd,pausewr flag(s) set")
        self.check_repeated()

    def test_pool_with_too_few_replicas_is_named(self):
        with contextlib.ExitStack() as stack:
            for name in ("size", "min_size"):
                arguments = {"pool": ceph.POOL, "var": name}
                before = {**arguments, "val": "1"}
                if name == "size":
                    before["yes_i_really_mean_it"] = True
                stack.enter_context(
                    self.changed("osd pool set", ("osd pool set", before), **arguments, val="2")
                )
            wait_until(self.is_inactive)
            self.check_no_answer("Reduced data availability")
        self.check_repeated()

    def is_inactive(self):
        return "PG_AVAILABILITY" in self.cluster.command("health")["checks"]


@full_only("storage")
class LargeTest(LimitCase):
    """An image that is larger than Ceph permits."""

    def test_volume_beyond_the_limit_of_ceph_names_it(self):
        error = self.assertRaises(
            exception.BackendError, self.driver.create, base.VolumeRef(new_id(), 1_000_001)
        )
        self.assertIn("cannot have 1000001 GiB: Ceph permits 1000000 GiB", f"{error}")
        self.assertTrue(error.final)
        text = self.perform(self.driver.extend, self.empty, 1_000_001, [])
        self.assertIn("Ceph permits 1000000 GiB", text)


class FakeModulesTest(RbdCase):
    """The fake modules of unit tests."""

    def test_fakes_have_the_names_of_the_real_modules_only(self):
        real, fakes = bindings.load(), fake_modules.modules()
        for module in ("rados", "rbd"):
            names = vars(getattr(fakes, module))
            unknown = [name for name in names if not hasattr(getattr(real, module), name)]
            self.assertEqual([], unknown)
        methods = {name for name in vars(fake_modules.Pool) if not name.startswith("_")}
        known = dir(real.rados.Ioctx)
        own = {"add_header", "add_record"}
        self.assertEqual(own, {name for name in methods if name not in known})
