# SPDX-License-Identifier: Apache-2.0
"""Tests of retypes that change how a volume is attached: they require an available volume."""

import functools
import itertools

from attachd.db import quotas
from attachd.db.types import type_store
from attachd.tests import concurrency
from attachd.tests.fixtures import db_rows
from attachd.tests.functional.api_case import ApiCase
from attachd.tests.functional.test_type_races import SEVERAL

TYPES = {
    "plain": {},
    "shared": SEVERAL,
    "one-writer": {**SEVERAL, "mode": "RO"},
    "archive": {"mode": "RO"},
    "few": {**SEVERAL, "max_attachments": "2"},
    "more": {**SEVERAL, "max_attachments": "3"},
    "apart": {**SEVERAL, "max_attachments_per_host": "1"},
}
SAME = {
    "plain": {"multiattach": "<is> False", "mode": "RW"},
    "shared": {"multiattach": "<is> yes", "mode": "rw"},
    "one-writer": {"capabilities:multiattach": "<is> True", "mode": "ro"},
}
"""Types with equal specs in another spelling."""

ATTACHMENTS = (
    "held", "reserved", "connecting", "connected", "attached", "disconnecting", "connect_unknown",
    "disconnect_failed",
)  # fmt: skip
STATES = (
    "creating", "deleting", "extending", "error", "error_deleting", "error_extending",
    "maintenance",
)  # fmt: skip


class Case(ApiCase):
    def setUp(self):
        super().setUp()
        self.types = {name: self.create_type(name, specs) for name, specs in TYPES.items()}

    def add(self, name, attachment=None, state="ready"):
        several = TYPES[name].get("multiattach") is not None
        values = {"volume_type_id": self.types[name], "multiattach": several}
        volume = db_rows.add_volume(state, availability_zone="nova", **values)["id"]
        if attachment:
            db_rows.add_attachment(volume, attachment)
        return volume

    def retype(self, volume, to):
        return self.api.request(
            "POST", f"/volumes/{volume}/action", {"os-retype": {"new_type": to}}
        )

    def seen(self, volume):
        found = self.api.request("GET", f"/volumes/{volume}").body["volume"]
        return found["volume_type"], found["multiattach"], found["status"]

    def assert_refused(self, volume, to, says, status=400):
        before = self.seen(volume)
        answer = self.act(volume, "os-retype", {"new_type": to}, status)
        self.assertRegex(answer.fault, says)
        self.assertEqual(before, self.seen(volume))


class WhenTest(Case):
    def test_retype_that_changes_multiattach_requires_available_volume(self):
        some = list(itertools.permutations(("plain", "shared", "one-writer"), 2))
        for old, new in itertools.permutations(TYPES, 2):
            self.check_refused(old, new, attachment="attached")
        for (old, new), name in itertools.product(some, ATTACHMENTS):
            self.check_refused(old, new, attachment=name)
        for (old, new), name in itertools.product(some, STATES):
            self.check_refused(old, new, state=name)

    def check_refused(self, old, new, **values):
        volume = self.add(old, **values)
        status = db_rows.get_volume(volume)["status"]
        with self.subTest(status=status, old=old, new=new):
            says = f"how often and by whom it can be attached.* {volume} is {status}"
            self.assert_refused(volume, new, says)

    def test_retype_that_changes_multiattach_of_available_volume_succeeds(self):
        for old, new in itertools.permutations(TYPES, 2):
            with self.subTest(old=old, new=new):
                volume = self.add(old)
                self.assertEqual(202, self.retype(volume, new).status)
                several = "multiattach" in TYPES[new]
                self.assertEqual((new, several, "available"), self.seen(volume))

    def test_retype_with_equal_specs_in_other_spelling_changes_nothing(self):
        for name, specs in SAME.items():
            self.types[f"also {name}"] = self.create_type(f"also {name}", specs)
            volume = self.add(name, "attached")
            self.assertEqual(202, self.retype(volume, f"also {name}").status)
            self.assertEqual(
                (f"also {name}", "multiattach" in TYPES[name], "in-use"), self.seen(volume)
            )

    def test_retype_with_finally_failed_attachment_succeeds(self):
        volume = self.add("plain", "connect_failed")
        self.assertEqual(202, self.retype(volume, "shared").status)
        self.assertEqual(("shared", True, "available"), self.seen(volume))


class FailureTest(Case):
    def test_retype_over_quota_keeps_type_and_flag(self):
        quotas.set_limits(db_rows.PROJECT, {"volumes_shared": 0, "volumes_plain": 0})
        self.assert_refused(self.add("plain"), "shared", "volumes_shared", 413)
        self.assert_refused(self.add("shared"), "plain", "volumes_plain", 413)

    def test_retype_refused_by_backend_keeps_type_and_flag(self):
        self.types["golden"] = self.create_type("golden", {**SEVERAL, "colour": "gold"})
        self.assert_refused(self.add("plain"), "golden", "does not migrate .* asks for: colour")
        self.types["single"] = self.create_type("single", {"colour": "gold"})
        self.assert_refused(self.add("shared"), "single", "does not migrate .* asks for: colour")

    def test_retype_to_deleted_or_changed_type_keeps_type_and_flag(self):
        for number, change in itertools.product(range(5), (type_store.delete, self._change)):
            kind = type_store.create(
                {"name": f"t{number}{change.__name__}", "extra_specs": SEVERAL}
            )
            volume = self.add("plain")
            answer, _ = concurrency.run_at_once(
                functools.partial(self.retype, volume, kind["id"]),
                functools.partial(change, kind["id"]),
            )
            name, several, _status = self.seen(volume)
            got = answer.status == 202
            self.assertEqual(got, name == kind["name"])
            self.assertIn(answer.status, {202, 404, 409}, answer.raw)
            asked = type_store.get(kind["id"])["extra_specs"] if got else {}
            self.assertEqual(asked == SEVERAL, several, asked)

    @staticmethod
    def _change(type_id):
        type_store.delete_spec(type_id, "multiattach")

    def test_retype_and_attach_at_once_exclude_each_other(self):
        wanted = {"os-retype": {"new_type": "plain"}}
        for _ in range(10):
            volume = self.add("shared")
            attachment = {"attachment": {"volume_uuid": volume}}
            answers = concurrency.run_at_once(
                lambda path=f"/volumes/{volume}/action": self.api.request("POST", path, wanted),
                lambda body=attachment: self.api.request("POST", "/attachments", body),
                lambda body=attachment: self.api.request("POST", "/attachments", body),
            )
            statuses = [answer.status for answer in answers]
            self.assertLessEqual(set(statuses), {200, 202, 400})
            _name, several, status = self.seen(volume)
            self.assertEqual("reserved", status)
            self.assertEqual(several, statuses[0] == 400, statuses)
            self.assertEqual(2 if several else 1, len(db_rows.list_attachments(volume)), statuses)
