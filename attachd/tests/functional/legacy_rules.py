# SPDX-License-Identifier: Apache-2.0
"""Rules of the state machine for clients of the legacy attach actions; see test_state_machine."""

from typing import Any

from hypothesis import stateful
from hypothesis import strategies as st

from attachd.tests.fixtures import backends, db_rows, wsgi_api
from attachd.tests.functional import attachment_model, legacy_model
from attachd.tests.functional.attachment_model import Faults

HOSTS = st.sampled_from(["compute-1", "compute-2"])
WORKS = st.sampled_from(["well"] * 6 + ["refused", "lost", "late"])
UNDOES = st.sampled_from(["well", "lost", "late"])
UNKNOWN = "99999999-9999-4999-8999-999999999999"


def connector(host: str) -> dict[str, Any]:
    """Return the connector of a host."""
    return {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}


class LegacyRules(stateful.RuleBasedStateMachine):
    """Rules for a machine that has volumes, asks and lets the driver fail."""

    driver: backends.RecordingDriver
    volumes: dict[str, legacy_model.Volume]

    def _volume(self, data: st.DataObject) -> legacy_model.Volume:
        raise NotImplementedError

    def _act(
        self, expected: int, volume: attachment_model.Volume, **action: Any
    ) -> wsgi_api.Response:
        raise NotImplementedError

    def has_volumes(self) -> bool:
        """Return whether a rule can apply."""
        return bool(self.volumes)

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), verb=st.sampled_from(["hold", "unhold", "begin", "roll"]))
    def say(self, data: st.DataObject, verb: str) -> None:
        volume = self._volume(data)
        if verb == "hold":
            self._act(volume.hold(), volume, **{"os-reserve": None})
        elif verb == "begin":
            self._act(volume.begin_detaching(), volume, **{"os-begin_detaching": None})
        elif verb == "roll":
            self._act(volume.roll_detaching(), volume, **{"os-roll_detaching": None})
        else:
            work = data.draw(WORKS)
            expected = volume.unhold(Faults(work))
            with self.driver.faults(revoke=work):
                self._act(expected, volume, **{"os-unreserve": None})

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), host=HOSTS, work=WORKS, undo=UNDOES)
    def let_in(self, data: st.DataObject, host: str, work: str, undo: str) -> None:
        volume = self._volume(data)
        expected = volume.let_in(host, Faults(work, undo))
        sent = {"os-initialize_connection": {"connector": connector(host)}}
        with self.driver.faults(grant=work, revoke=undo):
            answer = self._act(expected, volume, **sent)
        attachment = volume.last
        if attachment is not None and not attachment.id:
            attachment.id = self._new_connection(volume)
        if expected == attachment_model.OK and attachment is not None:
            result = answer.body["connection_info"]["data"]
            assert (result["attachment_id"], result["volume_id"]) == (attachment.id, volume.id), (
                result
            )

    @staticmethod
    def _new_connection(volume: legacy_model.Volume) -> str:
        known = {connection.id for connection in volume.connections.values()}
        held = db_rows.list_attachments(volume.id)
        (found,) = {row["id"] for row in held if row["kind"] == "connection"} - known
        return str(found)

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), host=st.one_of(HOSTS, st.none()), work=WORKS)
    def shut(self, data: st.DataObject, host: str | None, work: str) -> None:
        self._shut(self._volume(data), host, work)

    def _shut(self, volume: legacy_model.Volume, host: str | None, work: str) -> None:
        expected = volume.shut(host, Faults(work))
        sent = {"connector": connector(host) if host else None}
        with self.driver.faults(revoke=work):
            self._act(expected, volume, **{"os-terminate_connection": sent})

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), server=st.integers(0, 2), host=HOSTS)
    def attach(self, data: st.DataObject, server: int, host: str) -> None:
        volume = self._volume(data)
        who = f"{server}" * 8 + "-1111-1111-1111-111111111111" if server else None
        new = not volume.is_known(who, host)
        expected = volume.attach(who, host)
        sent = {"host_name": host, "mountpoint": "/dev/vdb"}
        self._act(
            expected, volume, **{"os-attach": sent | ({"instance_uuid": who} if who else {})}
        )
        if new and expected == attachment_model.ACCEPTED:
            (attachment,) = {
                row["id"] for row in db_rows.list_attachments(volume.id) if row["kind"] == "legacy"
            } - volume.attachments.keys()
            volume.add_attached(attachment, who, host)

    @stateful.precondition(has_volumes)
    @stateful.rule(data=st.data(), work=WORKS)
    def leave(self, data: st.DataObject, work: str) -> None:
        volume = self._volume(data)
        named = data.draw(st.sampled_from([*volume.attachments, UNKNOWN, None, None]))
        faults = Faults(work)
        if named == UNKNOWN:
            expected = attachment_model.ACCEPTED
        else:
            expected = volume.leave(volume.attachments.get(named or ""), faults)
        with self.driver.faults(revoke=work):
            self._act(expected, volume, **{"os-detach": {"attachment_id": named}})

    def has_attachments(self) -> bool:
        """Return whether a forced detach is possible."""
        return any(volume.attachments for volume in self.volumes.values())

    @stateful.precondition(has_attachments)
    @stateful.rule(data=st.data(), host=st.one_of(HOSTS, st.none()), work=WORKS)
    def leave_by_force(self, data: st.DataObject, host: str | None, work: str) -> None:
        volume = data.draw(
            st.sampled_from([item for item in self.volumes.values() if item.attachments])
        )
        attachment = volume.attachments[data.draw(st.sampled_from(list(volume.attachments)))]
        expected = volume.leave_by_force(attachment, host, Faults(work))
        sent = {"attachment_id": attachment.id, "connector": connector(host) if host else None}
        with self.driver.faults(revoke=work):
            self._act(expected, volume, **{"os-force_detach": sent})
