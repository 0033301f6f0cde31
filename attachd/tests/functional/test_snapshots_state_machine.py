# SPDX-License-Identifier: Apache-2.0
"""Tests of snapshots and transfers against a model, with random calls of two projects.

Hypothesis draws the calls; each goes through HTTP, RPC, the flows and SQLite.  Afterwards rows,
lists, counted quotas and the backend are compared with the model, which imports nothing of
attachd.  ATTACHD_TEST_EXAMPLES=1000 runs more.
"""

from dataclasses import dataclass
from typing import Any
import unittest

from hypothesis import stateful
from hypothesis import strategies as st

from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional import state_machines
from attachd.tests.wait import wait_until

STEPS = 30
VOLUMES, SNAPSHOTS = 3, 4
OK, ACCEPTED, NO_CONTENT, BAD, MISSING, CONFLICT = 200, 202, 204, 400, 404, 409

TOKENS = {wsgi_api.PROJECT: wsgi_api.MEMBER, "b" * 32: wsgi_api.OTHER_PROJECT_MEMBER}
PROJECTS = st.sampled_from(sorted(TOKENS))
# Others than the owner are refused at once: most calls shall be those of the owner.
STRANGERS = st.sampled_from([False] * 6 + [True])
LUCK = st.sampled_from(["well"] * 3 + ["lost"])


@dataclass
class Volume:
    """A volume of one GiB; ``transfer`` and ``attachment`` are ids, "" for none."""

    id: str
    project: str
    transfer: str = ""
    key: str = ""
    no_snapshots: bool = False
    attachment: str = ""
    status: str = "available"


@dataclass
class Snapshot:
    """A snapshot; ``made`` is whether the backend has it."""

    id: str
    volume: Volume
    project: str
    state: str = "available"
    made: bool = True


class Machine(stateful.RuleBasedStateMachine):
    """The calls, and what has to be true after each of them."""

    def __init__(self, api: wsgi_api.WsgiApi) -> None:
        super().__init__()
        self.api = api
        self.driver = api.backend.driver
        state_machines.reset(api)
        self.volumes: dict[str, Volume] = {}
        self.snapshots: dict[str, Snapshot] = {}

    def has_volumes(self) -> bool:
        return bool(self.volumes)

    def has_snapshots(self) -> bool:
        return bool(self.snapshots)

    def has_transfers(self) -> bool:
        return any(volume.transfer for volume in self.volumes.values())

    def _volume(self, data: st.DataObject) -> Volume:
        return self.volumes[data.draw(st.sampled_from(list(self.volumes)))]

    def _snapshot(self, data: st.DataObject) -> Snapshot:
        return self.snapshots[data.draw(st.sampled_from(list(self.snapshots)))]

    def _list_snapshots(self, volume: Volume) -> list[Snapshot]:
        """Return the snapshots of a volume, the latest last."""
        return [item for item in self.snapshots.values() if item.volume is volume]

    def _ask(
        self, expected: int, project: str, method: str, path: str, body: Any = None
    ) -> wsgi_api.Response:
        answer = self.api.request(method, path, body, token=TOKENS[project])
        assert answer.status == expected, (method, path, body, expected, answer)
        return answer

    @staticmethod
    def _caller(owner: str, *, is_stranger: bool) -> str:
        return next(project for project in TOKENS if (project != owner) == is_stranger)

    @staticmethod
    def _settle() -> None:
        """Wait until the manager has done what was asked for by a cast."""
        working = {"creating", "deleting", "reverting", "restoring"}
        wait_until(
            lambda: (
                not any(
                    row["state"] in working
                    for row in db_rows.list_volumes() + db_rows.list_snapshots()
                )
            ),
            "a volume or a snapshot is in progress",
            interval=0.002,
        )

    @stateful.initialize(project=PROJECTS)
    def begin_with_a_volume(self, project: str) -> None:
        self._create({"size": 1}, project)

    @stateful.rule(project=PROJECTS)
    def create_volume(self, project: str) -> None:
        if len(self.volumes) < VOLUMES:
            self._create({"size": 1}, project)

    def _create(self, wanted: dict[str, Any], project: str) -> None:
        answer = self._ask(ACCEPTED, project, "POST", "/volumes", {"volume": wanted})
        self._settle()
        volume = Volume(answer.body["volume"]["id"], project)
        self.volumes[volume.id] = volume

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), is_stranger=STRANGERS, luck=LUCK)
    def take(self, data: st.DataObject, luck: str, *, is_stranger: bool) -> None:
        volume = self._volume(data)
        if len(self.snapshots) == SNAPSHOTS:
            return
        project = self._caller(volume.project, is_stranger=is_stranger)
        expected = ACCEPTED if volume.status in {"available", "in-use"} else BAD
        body = {"snapshot": {"volume_id": volume.id}}
        with self.driver.faults(create_snapshot=luck):
            answer = self._ask(
                MISSING if is_stranger else expected, project, "POST", "/snapshots", body
            )
            self._settle()
        if answer.status == ACCEPTED:
            made = luck == "well"
            new = Snapshot(answer.body["snapshot"]["id"], volume, project, made=made)
            new.state = "available" if made else "error"
            self.snapshots[new.id] = new

    @stateful.precondition(has_snapshots)
    @stateful.rule(data=st.data(), is_stranger=STRANGERS, luck=LUCK)
    def delete_snapshot(self, data: st.DataObject, luck: str, *, is_stranger: bool) -> None:
        snapshot = self._snapshot(data)
        project = self._caller(snapshot.project, is_stranger=is_stranger)
        expected = MISSING if is_stranger else ACCEPTED
        with self.driver.faults(delete_snapshot=luck):
            self._ask(expected, project, "DELETE", f"/snapshots/{snapshot.id}")
            self._settle()
        if expected == ACCEPTED and luck == "well":
            del self.snapshots[snapshot.id]
        elif expected == ACCEPTED:
            snapshot.state = "error_deleting"

    @stateful.precondition(has_snapshots)
    @stateful.rule(data=st.data(), is_stranger=STRANGERS)
    def create_of_snapshot(self, data: st.DataObject, *, is_stranger: bool) -> None:
        snapshot = self._snapshot(data)
        project = self._caller(snapshot.project, is_stranger=is_stranger)
        wanted = {"snapshot_id": snapshot.id}
        if is_stranger or snapshot.state != "available":
            expected = MISSING if is_stranger else BAD
            self._ask(expected, project, "POST", "/volumes", {"volume": wanted})
        elif len(self.volumes) < VOLUMES:
            self._create(wanted, project)

    @stateful.precondition(has_snapshots)
    @stateful.rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        snapshot = self._snapshot(data)
        volume = snapshot.volume
        is_usable = snapshot.state == "available" and snapshot.project == volume.project
        expected = ACCEPTED if is_usable and volume.status == "available" else CONFLICT
        if snapshot is not self._list_snapshots(volume)[-1]:
            expected = BAD
        body = {"revert": {"snapshot_id": snapshot.id}}
        self._ask(expected, volume.project, "POST", f"/volumes/{volume.id}/action", body)
        self._settle()

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), is_stranger=STRANGERS, cascade=st.booleans())
    def delete_volume(self, data: st.DataObject, *, is_stranger: bool, cascade: bool) -> None:
        volume = self._volume(data)
        project = self._caller(volume.project, is_stranger=is_stranger)
        snapshots = self._list_snapshots(volume)
        is_kept = any(item.project != volume.project for item in snapshots)
        is_free = not snapshots or (cascade and not is_kept)
        expected = ACCEPTED if is_free and volume.status == "available" else BAD
        path = f"/volumes/{volume.id}{'?cascade=true' if cascade else ''}"
        answer = self._ask(MISSING if is_stranger else expected, project, "DELETE", path)
        self._settle()
        if answer.status == ACCEPTED:
            del self.volumes[volume.id]
            for item in snapshots:
                del self.snapshots[item.id]

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data())
    def attach(self, data: st.DataObject) -> None:
        volume = self._volume(data)
        expected = OK if volume.status == "available" else BAD
        body = {"attachment": {"volume_uuid": volume.id}}
        answer = self._ask(expected, volume.project, "POST", "/attachments", body)
        if expected == OK:
            volume.attachment = answer.body["attachment"]["id"]
            path = f"/attachments/{volume.attachment}/action"
            self._ask(NO_CONTENT, volume.project, "POST", path, {"os-complete": None})
            volume.status = "in-use"

    @stateful.precondition(lambda self: any(it.attachment for it in self.volumes.values()))
    @stateful.rule()
    def detach(self) -> None:
        volume = next(it for it in self.volumes.values() if it.attachment)
        self._ask(OK, volume.project, "DELETE", f"/attachments/{volume.attachment}")
        volume.attachment, volume.status = "", "available"

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), is_stranger=STRANGERS, no_snapshots=st.booleans())
    def offer(self, data: st.DataObject, *, is_stranger: bool, no_snapshots: bool) -> None:
        volume = self._volume(data)
        project = self._caller(volume.project, is_stranger=is_stranger)
        own = [item for item in self._list_snapshots(volume) if item.project == volume.project]
        is_ready = no_snapshots or all(item.state == "available" for item in own)
        expected = ACCEPTED if is_ready and volume.status == "available" else BAD
        body = {"transfer": {"volume_id": volume.id, "no_snapshots": no_snapshots}}
        expected = MISSING if is_stranger else expected
        answer = self._ask(expected, project, "POST", "/volume-transfers", body)
        if expected == ACCEPTED:
            made = answer.body["transfer"]
            volume.transfer, volume.key = made["id"], made["auth_key"]
            volume.status, volume.no_snapshots = "awaiting-transfer", no_snapshots

    @stateful.precondition(has_transfers)
    @stateful.rule(project=PROJECTS, knows_key=st.sampled_from([True] * 4 + [False]))
    def accept(self, project: str, *, knows_key: bool) -> None:
        volume = next(it for it in self.volumes.values() if it.transfer)
        own = [item for item in self._list_snapshots(volume) if item.project == volume.project]
        is_ready = volume.no_snapshots or all(item.state == "available" for item in own)
        expected = ACCEPTED if is_ready and knows_key else BAD
        path = f"/volume-transfers/{volume.transfer}/accept"
        body = {"accept": {"auth_key": volume.key if knows_key else "0" * 32}}
        self._ask(expected, project, "POST", path, body)
        if expected == ACCEPTED:
            for item in [] if volume.no_snapshots else own:
                item.project = project
            volume.project, volume.transfer, volume.status = project, "", "available"

    @stateful.precondition(has_transfers)
    @stateful.rule(is_stranger=STRANGERS)
    def withdraw(self, *, is_stranger: bool) -> None:
        volume = next(it for it in self.volumes.values() if it.transfer)
        project = self._caller(volume.project, is_stranger=is_stranger)
        expected = MISSING if is_stranger else ACCEPTED
        self._ask(expected, project, "DELETE", f"/volume-transfers/{volume.transfer}")
        if not is_stranger:
            volume.transfer, volume.status = "", "available"

    @stateful.invariant()
    def rows_are_those_of_the_model(self) -> None:
        volumes = {row["id"]: (row["project_id"], row["status"]) for row in db_rows.list_volumes()}
        expected = {item.id: (item.project, item.status) for item in self.volumes.values()}
        assert volumes == expected, (volumes, expected)
        snapshots = {
            row["id"]: (row["volume_id"], row["project_id"], row["state"])
            for row in db_rows.list_snapshots()
        }
        modelled = {
            item.id: (item.volume.id, item.project, item.state) for item in self.snapshots.values()
        }
        assert snapshots == modelled, (snapshots, modelled)
        assert {row[0] for row in snapshots.values()} <= volumes.keys(), snapshots

    @stateful.invariant()
    def each_project_sees_its_own(self) -> None:
        for project in TOKENS:
            for path, name, expected in (
                ("/volumes", "volumes", self._owned(self.volumes, project)),
                ("/snapshots", "snapshots", self._owned(self.snapshots, project)),
                (
                    "/volume-transfers",
                    "transfers",
                    {it.transfer for it in self.volumes.values() if it.project == project} - {""},
                ),
            ):
                listed = self._ask(OK, project, "GET", path).body[name]
                assert {item["id"] for item in listed} == expected, (project, listed, expected)

    @staticmethod
    def _owned(items: dict[str, Any], project: str) -> set[str]:
        return {item.id for item in items.values() if item.project == project}

    @stateful.invariant()
    def quotas_count_the_rows(self) -> None:
        for project in TOKENS:
            path = f"/os-quota-sets/{project}?usage=true"
            shown = self._ask(OK, project, "GET", path).body["quota_set"]
            volumes = len(self._owned(self.volumes, project))
            snapshots = len(self._owned(self.snapshots, project))
            expected = {
                "volumes": volumes,
                "snapshots": snapshots,
                "gigabytes": volumes + snapshots,
            }
            used = {name: shown[name]["in_use"] for name in expected}
            assert used == expected, (project, used, expected)

    @stateful.invariant()
    def the_backend_has_the_same(self) -> None:
        assert self.driver.sizes().keys() == self.volumes.keys(), self.driver.sizes()
        made = {item.id: item.volume.id for item in self.snapshots.values() if item.made}
        assert dict(self.driver._snapshots) == made, (self.driver._snapshots, made)


class SnapshotsStateMachineTest(unittest.TestCase):
    """One API and one manager, many stories."""

    def test_random_calls_obey_the_model_of_snapshots_and_transfers(self):
        api = state_machines.start_api(self)
        api.backend.driver.copies_snapshots = False
        state_machines.run(lambda: Machine(api), STEPS, divisor=4)
