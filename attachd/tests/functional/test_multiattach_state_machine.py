# SPDX-License-Identifier: Apache-2.0
"""Tests of types, limits and modes with random calls and backend errors.

It works as test_state_machine, with multiattach volumes and multiattach_model.py.
"""

from typing import Any
import unittest

from hypothesis import stateful
from hypothesis import strategies as st

from attachd.tests.fixtures import conf_fixture, db_rows, wsgi_api
from attachd.tests.functional import attachment_model, multiattach_model, state_machines
from attachd.tests.functional.attachment_model import Faults
from attachd.tests.functional.legacy_rules import connector
from attachd.tests.functional.multiattach_model import (
    KINDS,
    MOST_AT_A_HOST,
    Attachment,
    Volume,
    server_count,
)

STEPS = 40
VOLUMES = 3
SERVER = "11111111-1111-1111-1111-111111111111"
SERVERS = st.sampled_from([SERVER, "22222222-2222-2222-2222-222222222222", None, None])
HOSTS = st.sampled_from(["compute-1", "compute-2"])
MODES = st.sampled_from([None, None, "rw", "ro"])
CONNECTOR_MODES = st.sampled_from([None, None, None, "rw", "ro"])
WORKS = st.sampled_from(["well"] * 6 + ["refused", "lost", "late"])
UNDOES = st.sampled_from(["well", "lost", "late"])


class Machine(stateful.RuleBasedStateMachine):
    """The calls, and what has to be true after each of them."""

    def __init__(self, api: wsgi_api.WsgiApi, types: dict[str, str]) -> None:
        super().__init__()
        self.api = api
        self.types = types
        self.driver = api.backend.driver
        self.volumes: dict[str, Volume] = {}
        state_machines.reset(api)
        self.driver.driver_calls.clear()

    def _ask(self, expected: int, method: str, path: str, body: Any = None) -> wsgi_api.Response:
        answer = self.api.request(method, path, body, token=wsgi_api.ADMIN)
        assert answer.status == expected, (method, path, body, expected, answer, self.volumes)
        return answer

    def _any_volume(self, data: st.DataObject) -> Volume:
        return self.volumes[data.draw(st.sampled_from(list(self.volumes)))]

    def _any_attachment(self, data: st.DataObject) -> tuple[Volume, Attachment]:
        every = [(one, item) for one in self.volumes.values() for item in one.shared.values()]
        unfinished = [pair for pair in every if pair[1].state not in {"connected", "attached"}]
        return data.draw(st.sampled_from([*every, *unfinished * 3]))

    @stateful.initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=VOLUMES))
    def begin(self, kinds: list[multiattach_model.Kind]) -> None:
        for kind in kinds:
            new = db_rows.add_volume(
                host="here@fake#pool",
                multiattach=kind.multiattach,
                volume_type_id=self.types[kind.name],
                project_id=wsgi_api.PROJECT,
            )["id"]
            self.volumes[new] = Volume(new, kind.multiattach, 1, 1, kind=kind)

    def has_attachments(self) -> bool:
        """Return whether a rule can apply to an attachment."""
        return any(one.shared for one in self.volumes.values())

    @stateful.rule(data=st.data(), server=SERVERS, asked=MODES)
    def reserve(self, data: st.DataObject, server: str | None, asked: str | None) -> None:
        volume = self._any_volume(data)
        attachment = Attachment("new", server, asked=asked)
        expected = volume.reserve_for(attachment)
        wanted = {"volume_uuid": volume.id, "instance_uuid": server, "mode": asked}
        body = {"attachment": {key: value for key, value in wanted.items() if value}}
        answer = self._ask(expected, "POST", "/attachments", body)
        if expected == attachment_model.OK:
            del volume.shared["new"], volume.attachments["new"]
            attachment.id = answer.body["attachment"]["id"]
            volume.shared[attachment.id] = volume.attachments[attachment.id] = attachment

    @stateful.precondition(has_attachments)
    @stateful.rule(data=st.data(), host=HOSTS, mode=CONNECTOR_MODES, work=WORKS, undo=UNDOES)
    def connect(
        self, data: st.DataObject, host: str, mode: str | None, work: str, undo: str
    ) -> None:
        volume, attachment = self._any_attachment(data)
        every = self.volumes.values()
        expected = volume.let_in(attachment, host, mode, Faults(work, undo), every, alone=True)
        said = connector(host) | ({"mode": mode} if mode else {})
        with self.driver.faults(grant=work, revoke=undo):
            body = {"attachment": {"connector": said}}
            answer = self._ask(expected, "PUT", f"/attachments/{attachment.id}", body)
        if expected == attachment_model.OK:
            info = answer.body["attachment"]["connection_info"]
            assert info["access_mode"] == attachment.mode, (info, attachment)

    @stateful.precondition(has_attachments)
    @stateful.rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        volume, attachment = self._any_attachment(data)
        expected = volume.complete(attachment)
        self._ask(expected, "POST", f"/attachments/{attachment.id}/action", {"os-complete": None})

    @stateful.precondition(has_attachments)
    @stateful.rule(data=st.data(), work=WORKS)
    def detach(self, data: st.DataObject, work: str) -> None:
        volume, attachment = self._any_attachment(data)
        expected = volume.leave(attachment, Faults(work))
        with self.driver.faults(revoke=work):
            self._ask(expected, "DELETE", f"/attachments/{attachment.id}")

    @stateful.rule(data=st.data(), readonly=st.booleans())
    def change_flag(self, data: st.DataObject, *, readonly: bool) -> None:
        volume = self._any_volume(data)
        expected = volume.change_flag(readonly=readonly)
        sent = {"os-update_readonly_flag": {"readonly": readonly}}
        self._ask(expected, "POST", f"/volumes/{volume.id}/action", sent)

    @stateful.invariant()
    def the_rows_are_what_the_model_says(self) -> None:
        for volume in self.volumes.values():
            row = db_rows.get_volume(volume.id)
            assert (row["status"], row["attach_status"]) == volume.status(), (row, volume)
            stored = {
                attachment["id"]: (attachment["state"], attachment["mode"])
                for attachment in db_rows.list_attachments(volume.id)
            }
            modelled = {item.id: (item.state, item.mode) for item in volume.shared.values()}
            assert stored == modelled, (stored, modelled)

    @stateful.invariant()
    def hosts_reach_their_volumes_in_the_mode_that_was_decided(self) -> None:
        granted = {
            driver_call.export.attachment_id: driver_call.export.mode
            for driver_call in self.driver.driver_calls
            if driver_call.method == "grant" and driver_call.export is not None
        }
        expected = {
            item.id: item.mode
            for volume in self.volumes.values()
            for item in volume.shared.values()
            if item.reachable
        }
        seen = {item: granted[item] for item in self.driver.granted()}
        assert seen == expected, (seen, expected)

    @stateful.invariant()
    def no_limit_is_exceeded_and_there_is_one_writer(self) -> None:
        for volume in self.volumes.values():
            # A failed connect does not count, until a detach of it fails as well: then another
            # attachment may have its place.
            failed = {"connect_failed", "disconnect_failed"}
            held = [
                row for row in db_rows.list_attachments(volume.id) if row["state"] not in failed
            ]
            servers = server_count(row["instance_uuid"] or row["id"] for row in held)
            assert servers <= (volume.kind.most or servers), held
            writers = {row["instance_uuid"] or row["id"] for row in held if row["mode"] == "rw"}
            assert not volume.kind.one_writer or len(writers) <= volume.multiattach, held
        for host in ("compute-1", "compute-2"):
            existing = [row for row in db_rows.list_attachments() if row["host"] == host]
            counted = [row for row in existing if row["state"] != "connect_failed"]
            assert len(counted) <= MOST_AT_A_HOST, counted


class SharingMachineTest(unittest.TestCase):
    """One API and one manager, many stories."""

    def test_random_calls_obey_the_multiattach_model(self):
        api = state_machines.start_api(self)
        conf_fixture.override(self, "max_attachments_per_host", MOST_AT_A_HOST, group="manager")
        types = {}
        for kind in KINDS:
            body = {"volume_type": {"name": kind.name, "extra_specs": kind.specs}}
            made = api.request("POST", "/types", body, token=wsgi_api.ADMIN)
            self.assertEqual(200, made.status, made)
            types[kind.name] = made.body["volume_type"]["id"]
        state_machines.run(lambda: Machine(api, types), STEPS)
