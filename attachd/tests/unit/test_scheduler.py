# SPDX-License-Identifier: Apache-2.0
"""Which backend gets a volume, and what is said when none does."""

import datetime
import math
import unittest

from attachd import exception, scheduler
from attachd.conf import CONF
from attachd.db.cluster import services
from attachd.tests.fixtures import api_context, db_rows

LONG_AGO = datetime.datetime.fromisoformat("2020-01-01")
THIN = {
    **api_context.BACKEND_REPORT,
    "total_gib": 10.0,
    "free_gib": 8.0,
    "allocated_gib": 150.0,
    "capabilities": {"thin_provisioning": True},
}


def candidate(host="h@b", room=10.0, zone="nova", usable=True, **capabilities):
    return scheduler.Candidate(host, zone, usable, {"pool_name": "p", **capabilities}, room)


def wanted(size=1, zone=None, **specs):
    return scheduler.RequestSpec(size, specs, zone)


class BestTest(unittest.TestCase):
    def refusal(self, wish, *offered):
        with self.assertRaises(exception.NoValidBackend) as caught:
            scheduler.select(wish, offered)
        self.assertEqual(400, caught.exception.code)
        return str(caught.exception)

    def test_the_most_room_wins(self):
        offered = [candidate("a@x", 5), candidate("b@y", 50), candidate("c@z", 7)]
        self.assertEqual(
            scheduler.Destination("b@y#p", "nova"), scheduler.select(wanted(size=2), offered)
        )

    def test_equals_take_turns(self):
        offered = [candidate("a@x", math.inf), candidate("b@y", math.inf)]
        hosts = {scheduler.select(wanted(), offered).host for _ in range(64)}
        self.assertEqual({"a@x#p", "b@y#p"}, hosts)

    def test_a_backend_just_large_enough_is_taken(self):
        self.assertEqual("h@b#p", scheduler.select(wanted(size=10), [candidate(room=10)]).host)

    def test_no_room_is_told_with_the_room_there_is(self):
        told = self.refusal(wanted(size=11), candidate(room=10.9), candidate(room=3))
        self.assertIn("11 GiB are asked for", told)
        self.assertIn("is 10 GiB", told)

    def test_room_at_a_backend_that_lacks_the_capability_does_not_count(self):
        told = self.refusal(
            wanted(size=50, multiattach="<is> True"),
            candidate(room=100, multiattach=False),
            candidate(room=10, multiattach=True),
        )
        self.assertIn("is 10 GiB", told)

    def test_nothing_has_reported(self):
        self.assertIn("no backend has reported yet", self.refusal(wanted()))

    def test_all_are_down(self):
        self.assertIn("down, disabled or frozen", self.refusal(wanted(), candidate(usable=False)))

    def test_a_missing_capability_is_named_but_not_its_value(self):
        told = self.refusal(
            wanted(multiattach="<is> True", volume_backend_name="secret-shelf"), candidate()
        )
        self.assertIn("multiattach, volume_backend_name", told)
        self.assertNotIn("secret-shelf", told)

    def test_what_a_type_says_of_attaching_asks_for_what_it_takes(self):
        for specs, missing in (
            ({"multiattach": "<is> True"}, "multiattach"),
            ({"capabilities:multiattach": "<is> True"}, "multiattach"),
            ({"mode": "RO"}, "read_only_enforced"),
            ({"multiattach": "<is> True", "mode": "ro"}, "multiattach, read_only_enforced"),
        ):
            able = dict.fromkeys(missing.split(", "), True)
            self.assertIn(f"asks for: {missing}.", self.refusal(wanted(**specs), candidate()))
            scheduler.select(wanted(**specs), [candidate(**able)])
        limits = {"max_attachments": "3", "max_attachments_per_host": "1"}
        scheduler.select(wanted(multiattach="<is> False", mode="RW", **limits), [candidate()])

    def test_only_the_capability_that_is_missing_is_named(self):
        told = self.refusal(wanted(ssd="1", compression="1"), candidate(ssd="1"))
        self.assertIn("asks for: compression.", told)

    def test_capabilities_that_no_backend_has_together(self):
        told = self.refusal(
            wanted(ssd="1", compression="1"), candidate(ssd="1"), candidate(compression="1")
        )
        self.assertIn("all of compression, ssd together", told)

    def test_a_zone_is_obeyed(self):
        offered = [candidate("a@x", 99, zone="east"), candidate("b@y", 1, zone="west")]
        self.assertEqual("b@y#p", scheduler.select(wanted(zone="west"), offered).host)

    def test_an_unknown_zone_is_told_with_the_known_ones(self):
        told = self.refusal(wanted(zone="mars"), candidate(zone="east"), candidate(zone="west"))
        self.assertIn("mars", told)
        self.assertIn("east, west", told)

    def test_the_zones_of_a_type_are_obeyed(self):
        offered = [candidate("a@x", 99, zone="east"), candidate("b@y", 1, zone="west")]
        spec = {scheduler.ZONES_SPEC: "west, north"}
        self.assertEqual("b@y#p", scheduler.select(wanted(**spec), offered).host)
        self.assertIn("not for", self.refusal(wanted(zone="east", **spec), *offered))

    def test_extra_specs_of_other_scopes_are_ignored(self):
        specs = {"quality:iops": "5", "capabilities:ssd": "1", "unset": None}
        self.assertEqual("h@b#p", scheduler.select(wanted(**specs), [candidate(ssd="1")]).host)

    def test_messages_name_no_hosts(self):
        for wish in (wanted(size=99), wanted(zone="x"), wanted(ssd="1")):
            self.assertNotIn("inner-host", self.refusal(wish, candidate("inner-host@b")))


class MeetsTest(unittest.TestCase):
    def test_operators(self):
        cases = [
            # offer, spec, met
            (True, "<is> True", True),
            ("true", "<is> True", True),
            (False, "<is> True", False),
            (False, "<is> False", True),
            ("iSCSI", "iSCSI", True),
            ("iSCSI", "FC", False),
            (True, "True", True),
            (False, "nonsense", False),
            ("a,b", "<in> b", True),
            ("a", "<or> a <or> b", True),
            ("c", "<or> a <or> b", False),
            (5, "= 5", True),
            (6, "= 5", True),
            (4, "= 5", False),
            (5, "== 5.0", True),
            (5, "!= 5", False),
            (5, ">= 6", False),
            (5, "<= 6", True),
            (5, "> 4", True),
            ("infinite", ">= 6", False),
            ("abc", "s== abc", True),
            ("abc", "s< b", True),
            (["FC", "iSCSI"], "iSCSI", True),
            ([], "iSCSI", False),
        ]
        for offer, spec, met in cases:
            with self.subTest(offer=offer, spec=spec):
                self.assertIs(met, scheduler.matches_spec(offer, spec))


class RoomTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])

    def room(self, **report):
        return scheduler.free_capacity({"report": {**api_context.BACKEND_REPORT, **report}})

    def test_a_backend_that_allocates_at_once_has_what_is_free(self):
        self.assertEqual(7.5, self.room(free_gib=7.5))

    def test_a_backend_that_allocates_late_promises_more_than_it_has(self):
        self.assertEqual(10 * 20 - 150, scheduler.free_capacity({"report": THIN}))

    def test_the_ratio_is_an_option(self):
        CONF.set_override("max_over_subscription_ratio", 2.0, group="manager")
        self.addCleanup(CONF.clear_override, "max_over_subscription_ratio", group="manager")
        self.assertEqual(
            10 * 2 - 15, scheduler.free_capacity({"report": {**THIN, "allocated_gib": 15}})
        )

    def test_no_end_stays_no_end(self):
        for capabilities in ({}, {"thin_provisioning": True}):
            room = self.room(free_gib=None, total_gib=None, capabilities=capabilities)
            self.assertEqual(math.inf, room)

    def test_a_full_disk_has_no_room_whatever_the_ratio(self):
        self.assertEqual(0, scheduler.free_capacity({"report": {**THIN, "free_gib": 0.0}}))


class ReportedTest(unittest.TestCase):
    """What is in the database, as placement sees it."""

    def setUp(self):
        super().setUp()
        api_context.use(self)

    def test_a_backend_is_known_by_its_name_unless_it_tells_another(self):
        api_context.report_backend("here@shelf")
        api_context.report_backend(
            "here@disk", report={**api_context.BACKEND_REPORT, "capabilities": {"pool_name": "x"}}
        )
        found = {each.host: each.capabilities for each in scheduler.candidates()}
        self.assertEqual("shelf", found["here@shelf"]["volume_backend_name"])
        self.assertEqual("shelf", found["here@shelf"]["pool_name"])
        self.assertEqual("iSCSI", found["here@shelf"]["storage_protocol"])
        self.assertEqual("x", found["here@disk"]["pool_name"])

    def test_volumes_since_the_last_report_take_room(self):
        db_rows.add_volume(size_gib=30, created_at=LONG_AGO)
        api_context.report_backend()
        db_rows.add_volume(size_gib=40)
        self.assertEqual([60.0], [each.available_gib for each in scheduler.candidates()])

    def test_volumes_still_being_made_take_room(self):
        db_rows.add_volume("creating", size_gib=30, created_at=LONG_AGO)
        api_context.report_backend()
        self.assertEqual([70.0], [each.available_gib for each in scheduler.candidates()])

    def test_who_is_silent_disabled_or_broken_gets_nothing(self):
        api_context.report_backend("silent@b")
        db_rows.change_service("silent@b", seen_at=LONG_AGO)
        api_context.report_backend("disabled@b")
        services.disable(api_context.BINARY, "disabled@b", None)
        api_context.report_backend("broken@b", up=False, report=None)
        self.assertEqual([False] * 3, [each.usable for each in scheduler.candidates()])
        with self.assertRaisesRegex(exception.NoValidBackend, "down"):
            scheduler.select_backend(wanted())

    def test_other_services_get_nothing(self):
        api_context.report_backend("host", binary="attachd-agent", report=None)
        self.assertEqual([], scheduler.candidates())

    def test_growing_needs_room_for_the_difference(self):
        api_context.report_backend()
        scheduler.check_free_capacity("here@fake#fake", 100)
        with self.assertRaisesRegex(exception.NoValidBackend, "101 GiB"):
            scheduler.check_free_capacity("here@fake#fake", 101)

    def test_a_backend_that_is_not_known_judges_for_itself(self):
        scheduler.check_free_capacity("elsewhere@fake#fake", 10**6)


class FrozenTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        api_context.use(self)
        api_context.report_backend("h@a")
        services.freeze(api_context.BINARY, "h@a")

    def test_a_frozen_backend_gets_nothing_new(self):
        with self.assertRaisesRegex(exception.NoValidBackend, "frozen"):
            scheduler.select_backend(wanted())
        services.thaw(api_context.BINARY, "h@a")
        self.assertEqual("h@a#a", scheduler.select_backend(wanted()).host)

    def test_what_it_has_stays_as_it_is(self):
        for host in ("h@a", "h@a#pool"):
            with self.assertRaisesRegex(exception.BackendFrozen, "The backend is frozen"):
                scheduler.check_not_frozen(host)
        for host in ("h@b#a", None):
            scheduler.check_not_frozen(host)
