# SPDX-License-Identifier: Apache-2.0
"""Selection of the backend of a volume."""

import contextlib
import datetime
import math
import unittest

from attachd import exception
from attachd.api import scheduler
from attachd.conf import CONF
from attachd.db.cluster import services
from attachd.tests.fixtures import api_context, conf_fixture, db_rows

LONG_AGO = datetime.datetime.fromisoformat("2020-01-01")
THIN = {
    **api_context.BACKEND_REPORT,
    "total_gib": 10.0,
    "free_gib": 8.0,
    "allocated_gib": 150.0,
    "capabilities": {"thin_provisioning": True},
}


def candidate(host="h@b", free=10.0, zone="nova", state="up", **capabilities):
    return scheduler.Candidate(host, zone, state, {"pool_name": "p", **capabilities}, free)


def request_spec(size=1, zone=None, **specs):
    return scheduler.RequestSpec(size, specs, zone)


class SelectTest(unittest.TestCase):
    def refusal(self, request, *offered):
        with self.assertRaises(exception.NoValidBackend) as caught:
            scheduler.select(request, offered)
        self.assertEqual(400, caught.exception.code)
        return str(caught.exception)

    def test_select_prefers_most_free_capacity(self):
        offered = [candidate("a@x", 5), candidate("b@y", 50), candidate("c@z", 7)]
        self.assertEqual(
            scheduler.Destination("b@y#p", "nova"), scheduler.select(request_spec(size=2), offered)
        )

    def test_select_among_equals_is_random(self):
        offered = [candidate("a@x", math.inf), candidate("b@y", math.inf)]
        hosts = {scheduler.select(request_spec(), offered).host for _ in range(64)}
        self.assertEqual({"a@x#p", "b@y#p"}, hosts)

    def test_select_accepts_exact_capacity(self):
        self.assertEqual(
            "h@b#p", scheduler.select(request_spec(size=10), [candidate(free=10)]).host
        )

    def test_select_without_capacity_names_largest_free_capacity(self):
        message = self.refusal(request_spec(size=11), candidate(free=10.9), candidate(free=3))
        self.assertIn("11 GiB are asked for", message)
        self.assertIn("is 10 GiB", message)

    def test_select_names_state_of_capable_backend(self):
        for state in ("disabled", "frozen", "down"):
            message = self.refusal(
                request_spec(multiattach="<is> True"),
                candidate(),
                candidate("h@other", state=state, multiattach=True),
                candidate("h@third", state="down"),
            )
            self.assertIn(f"multiattach. A backend that has it is {state}.", message)
            self.assertNotIn("other", message)

    def test_select_ignores_capacity_of_incapable_backend(self):
        message = self.refusal(
            request_spec(size=50, multiattach="<is> True"),
            candidate(free=100, multiattach=False),
            candidate(free=10, multiattach=True),
        )
        self.assertIn("is 10 GiB", message)

    def test_select_without_reports_raises(self):
        self.assertIn("no backend has reported yet", self.refusal(request_spec()))

    def test_select_with_unusable_backends_raises(self):
        self.assertIn(
            "down, disabled or frozen", self.refusal(request_spec(), candidate(state="down"))
        )

    def test_select_names_missing_capability_without_value(self):
        message = self.refusal(
            request_spec(multiattach="<is> True", volume_backend_name="secret-shelf"), candidate()
        )
        self.assertIn("multiattach, volume_backend_name", message)
        self.assertNotIn("secret-shelf", message)

    def test_select_by_attach_specs_needs_capabilities(self):
        for specs, missing in (
            ({"multiattach": "<is> True"}, "multiattach"),
            ({"capabilities:multiattach": "<is> True"}, "multiattach"),
            ({"mode": "RO"}, "read_only_enforced"),
            ({"multiattach": "<is> True", "mode": "ro"}, "multiattach, read_only_enforced"),
        ):
            able = dict.fromkeys(missing.split(", "), True)
            self.assertIn(
                f"asks for: {missing}.", self.refusal(request_spec(**specs), candidate())
            )
            scheduler.select(request_spec(**specs), [candidate(**able)])
        limits = {"max_attachments": "3", "max_attachments_per_host": "1"}
        scheduler.select(
            request_spec(multiattach="<is> False", mode="RW", **limits), [candidate()]
        )

    def test_select_names_only_missing_capability(self):
        message = self.refusal(request_spec(ssd="1", compression="1"), candidate(ssd="1"))
        self.assertIn("asks for: compression.", message)

    def test_select_names_capabilities_no_backend_combines(self):
        message = self.refusal(
            request_spec(ssd="1", compression="1"), candidate(ssd="1"), candidate(compression="1")
        )
        self.assertIn("all of compression, ssd together", message)

    def test_select_uses_requested_zone(self):
        offered = [candidate("a@x", 99, zone="east"), candidate("b@y", 1, zone="west")]
        self.assertEqual("b@y#p", scheduler.select(request_spec(zone="west"), offered).host)

    def test_select_with_unknown_zone_names_known_ones(self):
        message = self.refusal(
            request_spec(zone="mars"), candidate(zone="east"), candidate(zone="west")
        )
        self.assertIn("mars", message)
        self.assertIn("east, west", message)

    def test_select_uses_zones_of_type(self):
        offered = [candidate("a@x", 99, zone="east"), candidate("b@y", 1, zone="west")]
        spec = {scheduler.ZONES_SPEC: "west, north"}
        self.assertEqual("b@y#p", scheduler.select(request_spec(**spec), offered).host)
        self.assertIn("not for", self.refusal(request_spec(zone="east", **spec), *offered))

    def test_select_ignores_extra_specs_of_other_scopes(self):
        specs = {"quality:iops": "5", "capabilities:ssd": "1", "unset": None}
        self.assertEqual(
            "h@b#p", scheduler.select(request_spec(**specs), [candidate(ssd="1")]).host
        )

    def test_refusals_name_no_host(self):
        for request in (request_spec(size=99), request_spec(zone="x"), request_spec(ssd="1")):
            self.assertNotIn("inner-host", self.refusal(request, candidate("inner-host@b")))


class MatchesSpecTest(unittest.TestCase):
    def test_matches_spec_evaluates_operators(self):
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


class FreeCapacityTest(conf_fixture.DefaultConfCase):
    def free_capacity(self, **report):
        return scheduler.free_capacity({"report": {**api_context.BACKEND_REPORT, **report}})

    def test_free_capacity_of_thick_backend_is_free_space(self):
        self.assertEqual(7.5, self.free_capacity(free_gib=7.5))

    def test_free_capacity_of_thin_backend_is_oversubscribed(self):
        self.assertEqual(10 * 20 - 150, scheduler.free_capacity({"report": THIN}))

    def test_free_capacity_uses_configured_ratio(self):
        CONF.set_override("max_over_subscription_ratio", 2.0, group="manager")
        self.addCleanup(CONF.clear_override, "max_over_subscription_ratio", group="manager")
        self.assertEqual(
            10 * 2 - 15, scheduler.free_capacity({"report": {**THIN, "allocated_gib": 15}})
        )

    def test_free_capacity_of_unlimited_backend_is_infinite(self):
        for capabilities in ({}, {"thin_provisioning": True}):
            free = self.free_capacity(free_gib=None, total_gib=None, capabilities=capabilities)
            self.assertEqual(math.inf, free)

    def test_free_capacity_of_full_disk_is_zero(self):
        self.assertEqual(0, scheduler.free_capacity({"report": {**THIN, "free_gib": 0.0}}))


class CandidatesTest(api_context.ApiContextCase):
    """Candidates from the reports in the database."""

    def test_candidate_has_reported_or_default_names(self):
        api_context.report_backend("here@shelf")
        api_context.report_backend(
            "here@disk", report={**api_context.BACKEND_REPORT, "capabilities": {"pool_name": "x"}}
        )
        found = {item.host: item.capabilities for item in scheduler.list_candidates()}
        self.assertEqual("shelf", found["here@shelf"]["volume_backend_name"])
        self.assertEqual("shelf", found["here@shelf"]["pool_name"])
        self.assertEqual("iSCSI", found["here@shelf"]["storage_protocol"])
        self.assertEqual("x", found["here@disk"]["pool_name"])

    def test_candidate_capacity_excludes_volumes_since_report(self):
        db_rows.add_volume(size_gib=30, created_at=LONG_AGO)
        api_context.report_backend()
        db_rows.add_volume(size_gib=40)
        self.assertEqual([60.0], [item.available_gib for item in scheduler.list_candidates()])

    def test_candidate_capacity_excludes_volumes_being_created(self):
        db_rows.add_volume("creating", size_gib=30, created_at=LONG_AGO)
        api_context.report_backend()
        self.assertEqual([70.0], [item.available_gib for item in scheduler.list_candidates()])

    def test_stale_disabled_or_broken_backend_is_not_usable(self):
        api_context.report_backend("silent@b")
        db_rows.change_service("silent@b", seen_at=LONG_AGO)
        api_context.report_backend("disabled@b")
        services.disable(api_context.BINARY, "disabled@b", None)
        api_context.report_backend("broken@b", up=False, report=None)
        api_context.report_backend("frozen@b")
        services.freeze(api_context.BINARY, "frozen@b")
        states = {item.host: item.state for item in scheduler.list_candidates()}
        self.assertEqual(
            {
                "silent@b": "down",
                "disabled@b": "disabled",
                "broken@b": "down",
                "frozen@b": "frozen",
            },
            states,
        )
        with self.assertRaisesRegex(exception.NoValidBackend, "down"):
            scheduler.select_backend(request_spec())

    def test_candidates_exclude_other_services(self):
        api_context.report_backend("host", binary="attachd-agent", report=None)
        self.assertEqual([], scheduler.list_candidates())

    def test_check_free_capacity_for_extend(self):
        api_context.report_backend()
        scheduler.check_free_capacity("here@fake#fake", 100)
        with self.assertRaisesRegex(exception.NoValidBackend, "101 GiB"):
            scheduler.check_free_capacity("here@fake#fake", 101)

    def test_driver_without_ability_gets_no_clone_and_no_online_extend(self):
        lacking = {"clone": False, "online_extend": False}
        for offered, is_refused in ((lacking, True), ({}, False)):
            report = {**api_context.BACKEND_REPORT, "capabilities": offered}
            api_context.report_backend(report=report)
            for name, check in (
                ("clone", lambda: scheduler.select_on_host("here@fake#fake", request_spec())),
                ("online_extend", lambda: scheduler.check_online_extend("here@fake#fake")),
            ):
                with contextlib.ExitStack() as stack:
                    if is_refused:
                        stack.enter_context(
                            self.assertRaisesRegex(exception.NoValidBackend, f"has no {name}")
                        )
                    check()

    def test_check_free_capacity_of_unknown_backend_passes(self):
        scheduler.check_free_capacity("elsewhere@fake#fake", 10**6)


class FrozenTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        services.freeze(api_context.BINARY, "h@a")

    def test_select_skips_frozen_backend(self):
        with self.assertRaisesRegex(exception.NoValidBackend, "frozen"):
            scheduler.select_backend(request_spec())
        services.thaw(api_context.BINARY, "h@a")
        self.assertEqual("h@a#a", scheduler.select_backend(request_spec()).host)

    def test_check_not_frozen_raises_for_frozen_backend(self):
        for host in ("h@a", "h@a#pool"):
            with self.assertRaisesRegex(exception.BackendFrozen, "The backend is frozen"):
                scheduler.check_not_frozen(host)
        for host in ("h@b#a", None):
            scheduler.check_not_frozen(host)


class PoolsTest(api_context.ApiContextCase):
    """A backend with several pools."""

    def setUp(self):
        super().setUp()
        pools = [
            {
                "name": name,
                "total_gib": free,
                "free_gib": free,
                "allocated_gib": 0.0,
                "capabilities": {"disk": name},
            }
            for name, free in (("ssd", 10.0), ("hdd", None))
        ]
        api_context.report_backend("h@a", report={**api_context.BACKEND_REPORT, "pools": pools})

    def test_pool_with_most_free_capacity_gets_volume(self):
        self.assertEqual("h@a#hdd", scheduler.select_backend(request_spec()).host)

    def test_type_can_require_pool(self):
        for specs in ({"disk": "ssd"}, {"pool_name": "ssd"}):
            self.assertEqual("h@a#ssd", scheduler.select_backend(request_spec(**specs)).host)
        with self.assertRaisesRegex(exception.NoValidBackend, "10 GiB"):
            scheduler.select_backend(request_spec(size=11, disk="ssd"))

    def test_later_promises_count_for_their_pool(self):
        db_rows.add_volume("creating", host="h@a#ssd", size_gib=4)
        free = {item.pool: item.available_gib for item in scheduler.list_candidates()}
        self.assertEqual({"h@a#ssd": 6.0, "h@a#hdd": math.inf}, free)

    def test_clone_goes_to_pool_of_source(self):
        self.assertEqual("h@a#ssd", scheduler.select_on_host("h@a#ssd", request_spec()).host)

    def test_extend_needs_capacity_of_pool(self):
        scheduler.check_free_capacity("h@a#hdd", 99)
        scheduler.check_free_capacity("h@a#ssd", 10)
        with self.assertRaisesRegex(exception.NoValidBackend, "10 GiB"):
            scheduler.check_free_capacity("h@a#ssd", 11)

    def test_volume_in_unknown_pool_may_use_any(self):
        scheduler.check_free_capacity("h@a#former", 11)
