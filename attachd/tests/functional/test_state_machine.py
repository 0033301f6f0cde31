# SPDX-License-Identifier: Apache-2.0
"""Tests of API, manager and database against a model, with random calls and backend errors.

Hypothesis draws the calls; each goes through HTTP, RPC, the flows and SQLite.  Afterwards the
responses, the rows and the grants of the backend are compared with attachment_model.py.
ATTACHD_TEST_EXAMPLES=1000 runs more.
"""

from typing import Any
import unittest

from hypothesis import stateful
from hypothesis import strategies as st

from attachd.db.volumes import volume_store
from attachd.manager.periodic_tasks.ensure_exports import EnsureExportsTask
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional import attachment_model, legacy_model, state_machines
from attachd.tests.functional.attachment_model import Faults
from attachd.tests.functional.legacy_rules import LegacyRules as Rules
from attachd.tests.functional.legacy_rules import connector
from attachd.tests.wait import wait_until

STEPS = 40
VOLUMES = 2
SIZE = 1

MULTIATTACH = "shared"
SERVER = "11111111-1111-1111-1111-111111111111"
SERVERS = st.sampled_from([SERVER, "22222222-2222-2222-2222-222222222222", None])
HOSTS = st.sampled_from(["compute-1", "compute-2"])
FAULTS = st.sampled_from(["refused", "lost", "late"])
WORKS = st.sampled_from(["well"] * 5 + ["refused", "lost", "late"])
UNDOES = st.sampled_from(["well", "lost", "late"])
LUCK = st.sampled_from(["well"] * 4 + ["lost"])


class Machine(Rules):
    """The calls, and what has to be true after each of them."""

    def __init__(self, api: wsgi_api.WsgiApi) -> None:
        super().__init__()
        self.api = api
        self.driver = api.backend.driver
        self.volumes: dict[str, legacy_model.Volume] = {}
        state_machines.reset(api)
        self.healer = EnsureExportsTask(api.backend)
        self.healer.run_once()

    def _volume(self, data: st.DataObject) -> legacy_model.Volume:
        return self.volumes[data.draw(st.sampled_from(list(self.volumes)))]

    def _attachment(
        self, data: st.DataObject
    ) -> tuple[attachment_model.Volume, attachment_model.Attachment]:
        every = [
            (volume, attachment)
            for volume in self.volumes.values()
            for attachment in volume.attachments.values()
        ]
        # Those that are not connected have the more interesting lives before them.
        unfinished = [pair for pair in every if pair[1].state not in {"connected", "attached"}]
        return data.draw(st.sampled_from([*every, *unfinished * 3]))

    def has_errors(self) -> bool:
        return any("error" in volume.status()[0] for volume in self.volumes.values())

    def _ask(self, expected: int, method: str, path: str, body: Any = None) -> wsgi_api.Response:
        answer = self.api.request(method, path, body, token=wsgi_api.ADMIN)
        assert answer.status == expected, (method, path, body, expected, answer)
        return answer

    def _act(
        self, expected: int, volume: attachment_model.Volume, **action: Any
    ) -> wsgi_api.Response:
        return self._ask(expected, "POST", f"/volumes/{volume.id}/action", action)

    @staticmethod
    def _settle(volume_id: str) -> None:
        """Wait until the manager has done what was asked for by a cast."""
        wait_until(
            lambda: (
                not any(
                    row["id"] == volume_id and row["state"] in volume_store.IN_PROGRESS
                    for row in db_rows.list_volumes()
                )
            ),
            f"volume {volume_id} is in progress",
            interval=0.002,
        )

    @stateful.initialize(multiattach=st.sampled_from([False, False, True]))
    def begin_with_a_volume(self, *, multiattach: bool) -> None:
        self._create_volume(multiattach=multiattach, luck="well")

    # One rule for all of these: what happens to attachments shall fill the stories.
    @stateful.rule(data=st.data(), luck=LUCK)
    def work_on_volumes(self, data: st.DataObject, luck: str) -> None:
        if not self.volumes:
            self._create_volume(multiattach=data.draw(st.booleans()), luck=luck)
            return
        volume = self._volume(data)
        # With a volume in error a story would hardly get on.
        broken = volume.own != "ready"
        verbs = ["available"] * 3 if broken else ["extend", "make", "error"]
        verb = data.draw(st.sampled_from([*verbs, "delete"]))
        if verb == "make":
            self._create_volume(multiattach=data.draw(st.booleans()), luck=luck)
        elif verb == "extend":
            self._extend_volume(volume, luck)
        elif verb == "delete":
            self._delete_volume(volume, luck)
        else:
            self._reset_status(volume, verb)

    @stateful.precondition(has_errors)
    @stateful.rule()
    def mend_what_is_in_error(self) -> None:
        for volume in self.volumes.values():
            for attachment in list(volume.attachments.values()):
                if attachment.wire.startswith("error"):
                    self._detach(volume, attachment, "well")
            for attachment in list(volume.connections.values()):
                if attachment.wire.startswith("error"):
                    self._shut(volume, attachment.host, "well")
            if volume.own != "ready":
                self._reset_status(volume, "available")

    def _create_volume(self, *, multiattach: bool, luck: str) -> None:
        if len(self.volumes) == VOLUMES:
            return
        wanted = {"size": SIZE, "volume_type": MULTIATTACH if multiattach else None}
        with self.driver.faults(create=luck):
            answer = self._ask(attachment_model.ACCEPTED, "POST", "/volumes", {"volume": wanted})
            volume_id = answer.body["volume"]["id"]
            self._settle(volume_id)
        made = SIZE if luck == "well" else 0
        own = "ready" if made else "error"
        self.volumes[volume_id] = legacy_model.Volume(volume_id, multiattach, SIZE, made, own)

    def _delete_volume(self, volume: attachment_model.Volume, luck: str) -> None:
        expected = volume.delete()
        with self.driver.faults(delete=luck):
            self._ask(expected, "DELETE", f"/volumes/{volume.id}")
            self._settle(volume.id)
        if expected == attachment_model.ACCEPTED and luck == "well":
            del self.volumes[volume.id]
        elif expected == attachment_model.ACCEPTED:
            volume.own = "error_deleting"

    def _extend_volume(self, volume: attachment_model.Volume, luck: str) -> None:
        size = volume.size_gib + 1
        expected = volume.extend(size, Faults(luck))
        with self.driver.faults(extend=luck):
            self._act(expected, volume, **{"os-extend": {"new_size": size}})
            self._settle(volume.id)

    def _reset_status(self, volume: attachment_model.Volume, status: str) -> None:
        self._act(volume.reset(status), volume, **{"os-reset_status": {"status": status}})

    @stateful.precondition(Rules.has_volumes)
    @stateful.rule(data=st.data(), server=SERVERS)
    def reserve(self, data: st.DataObject, server: str | None) -> None:
        volume = self._volume(data)
        expected = volume.reserve(server)
        answer = self._ask(expected, "POST", "/attachments", _wanted(volume, server))
        if expected == attachment_model.OK:
            volume.add(answer.body["attachment"]["id"], server)

    @stateful.precondition(Rules.has_volumes)
    @stateful.rule(data=st.data(), server=SERVERS, host=HOSTS, work=WORKS, undo=UNDOES)
    def create_connected(
        self, data: st.DataObject, server: str | None, host: str, work: str, undo: str
    ) -> None:
        volume = self._volume(data)
        body = _wanted(volume, server, connector=connector(host))
        if duplicates := volume.duplicates(server, host):
            answer = self._ask(attachment_model.OK, "POST", "/attachments", body)
            assert answer.body["attachment"]["id"] in duplicates, "a repetition makes nothing"
            return
        if failed := volume.failed(server, host):
            if len(failed) == 1:  # which of several is tried again is not promised
                self._connect_again(volume, failed[0], body, Faults(work, undo))
            return
        expected = volume.reserve(server)
        attachment = attachment_model.Attachment("not known yet", server)
        if expected == attachment_model.OK:
            attachment = volume.add(attachment.id, server)
            expected = volume.connect(attachment, host, Faults(work, undo), alone=False)
        with self.driver.faults(grant=work, revoke=undo):
            answer = self._ask(expected, "POST", "/attachments", body)
        if volume.attachments.pop(attachment.id, None):
            attachment.id = self._new_row(volume)
            volume.attachments[attachment.id] = attachment
            assert attachment.id in answer.raw.decode(), "a client has to learn the id in any case"

    def _connect_again(
        self,
        volume: attachment_model.Volume,
        attachment: attachment_model.Attachment,
        body: dict[str, Any],
        faults: Faults,
    ) -> None:
        expected = attachment_model.OK
        if attachment.state == "connect_failed":  # it does not hold the volume
            expected = volume.reserve(attachment.server)
        if expected == attachment_model.OK:
            host = body["attachment"]["connector"]["host"]
            expected = volume.connect(attachment, host, faults, alone=False)
        with self.driver.faults(grant=faults.work, revoke=faults.undo):
            answer = self._ask(expected, "POST", "/attachments", body)
        if expected == attachment_model.OK:
            assert answer.body["attachment"]["id"] == attachment.id, "a repetition makes nothing"

    @staticmethod
    def _new_row(volume: legacy_model.Volume) -> str:
        known = {
            *volume.attachments,
            *(connection.id for connection in volume.connections.values()),
        }
        (new,) = {
            row["id"] for row in db_rows.list_attachments(volume.id) if row["kind"] != "hold"
        } - known
        return str(new)

    @stateful.precondition(Rules.has_attachments)
    @stateful.rule(data=st.data(), host=HOSTS)
    def update(self, data: st.DataObject, host: str) -> None:
        self._update(*self._attachment(data), host, Faults())

    def _update(
        self,
        volume: attachment_model.Volume,
        attachment: attachment_model.Attachment,
        host: str,
        faults: Faults,
    ) -> None:
        expected = volume.connect(attachment, host, faults, alone=True)
        body = {"attachment": {"connector": connector(host)}}
        with self.driver.faults(grant=faults.work, revoke=faults.undo):
            answer = self._ask(expected, "PUT", f"/attachments/{attachment.id}", body)
        if expected == attachment_model.OK:
            result = answer.body["attachment"]["connection_info"]
            assert (result["attachment_id"], result["volume_id"]) == (attachment.id, volume.id), (
                result
            )

    @stateful.precondition(Rules.has_attachments)
    @stateful.rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        volume, attachment = self._attachment(data)
        path = f"/attachments/{attachment.id}/action"
        self._ask(volume.complete(attachment), "POST", path, {"os-complete": None})

    @stateful.precondition(Rules.has_attachments)
    @stateful.rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        self._detach(*self._attachment(data), "well")

    @stateful.precondition(Rules.has_attachments)
    @stateful.rule(data=st.data(), connect=st.booleans(), work=FAULTS)
    def update_or_detach_in_vain(self, data: st.DataObject, *, connect: bool, work: str) -> None:
        volume, attachment = self._attachment(data)
        if connect:
            self._update(volume, attachment, data.draw(HOSTS), Faults(work, data.draw(UNDOES)))
        else:
            self._detach(volume, attachment, work)

    def _detach(
        self, volume: attachment_model.Volume, attachment: attachment_model.Attachment, work: str
    ) -> None:
        expected = volume.detach(attachment, Faults(work))
        with self.driver.faults(revoke=work):
            answer = self._ask(expected, "DELETE", f"/attachments/{attachment.id}")
        if expected == attachment_model.OK:
            left = {item["id"] for item in answer.body["attachments"]}
            assert left == set(volume.attachments), left

    @stateful.rule()
    def restart_backend(self) -> None:
        self.driver.restart()
        self.healer.run_once()
        for volume in self.volumes.values():
            for item in volume.every():
                item.reachable = item.state in {"connected", "attached"} and item.host is not None

    @stateful.invariant()
    def clients_see_what_the_model_says(self) -> None:
        for volume in self.volumes.values():
            seen = self._ask(attachment_model.OK, "GET", f"/volumes/{volume.id}").body["volume"]
            assert (seen["status"], seen["size"]) == (volume.status()[0], volume.size_gib), seen
            used = {attachment["attachment_id"] for attachment in seen["attachments"]}
            expected = {
                attachment.id
                for attachment in volume.attachments.values()
                if attachment.wire == "attached"
            }
            assert used == expected, (used, volume)

    @stateful.invariant()
    def the_rows_are_what_the_model_says(self) -> None:
        for volume in self.volumes.values():
            row = db_rows.get_volume(volume.id)
            assert row["state"] == volume.own, (row, volume)
            assert (row["status"], row["attach_status"]) == volume.status(), (row, volume)
            assert row["pending_detaches"] == volume.leaving, (row, volume)
            held = db_rows.list_attachments(volume.id)
            stored = {row["id"]: (row["state"], row["parent_id"]) for row in held}
            holds = [row["id"] for row in held if row["kind"] == "hold"]
            assert [stored.pop(hold) for hold in holds] == [("held", None)] * volume.holds, volume
            modelled: dict[str, tuple[str, str | None]]
            modelled = {
                attachment.id: (attachment.state, None)
                for attachment in volume.attachments.values()
            }
            modelled |= {
                connection.id: (connection.state, connection.serves)
                for connection in volume.connections.values()
            }
            assert stored == modelled, (stored, modelled)

    @stateful.invariant()
    def exactly_those_hosts_reach_their_volumes_that_should(self) -> None:
        expected = {
            item.id
            for volume in self.volumes.values()
            for item in volume.every()
            if item.reachable
        }
        assert self.driver.granted() == expected, expected

    @stateful.invariant()
    def the_backend_has_the_volumes_and_no_others(self) -> None:
        expected = {
            volume.id: volume.made_gib for volume in self.volumes.values() if volume.made_gib
        }
        assert self.driver.sizes() == expected, (self.driver.sizes(), expected)


def _wanted(volume: attachment_model.Volume, server: str | None, **more: Any) -> dict[str, Any]:
    who = {"instance_uuid": server} if server else {}
    return {"attachment": {"volume_uuid": volume.id, **who, **more}}


class StateMachineTest(unittest.TestCase):
    """One API and one manager, many stories."""

    def test_random_calls_obey_the_attachment_model(self):
        api = state_machines.start_api(self)
        specs = {"name": MULTIATTACH, "extra_specs": {"multiattach": "<is> True"}}
        made = api.request("POST", "/types", {"volume_type": specs}, token=wsgi_api.ADMIN)
        self.assertEqual(200, made.status, made)
        state_machines.run(lambda: Machine(api), STEPS)
