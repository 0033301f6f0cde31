# SPDX-License-Identifier: Apache-2.0
"""Tests that one host at a time may write, in each story of an attachment that moves.

Hypothesis draws calls and backend errors; each call goes through HTTP, RPC, the flows and SQLite.
After each grant, and after each call, the backend's modes are counted.  ATTACHD_TEST_EXAMPLES=1000
runs more.
"""

from typing import Any
import unittest
from unittest import mock

from hypothesis import stateful
from hypothesis import strategies as st

from attachd.manager.periodic_tasks.ensure_exports import EnsureExportsTask
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.tests.fixtures import db_rows, wsgi_api
from attachd.tests.functional import state_machines
from attachd.tests.wait import wait_until

STEPS = 25
VERSION = f"{wsgi_api.LATEST}, attachd 1.1"
HOSTS = st.sampled_from(["compute-1", "compute-2", "compute-3"])
WORKS = st.sampled_from(["well"] * 5 + ["refused", "lost", "late"])
ANSWERS = {200, 400, 404, 409, 500}


class Machine(stateful.RuleBasedStateMachine):
    """The calls for one volume, and what has to be true after each of them."""

    def __init__(self, api: wsgi_api.WsgiApi) -> None:
        super().__init__()
        self.api = api
        self.driver = api.backend.driver
        state_machines.reset(api)
        self.volume = db_rows.add_volume()["id"]
        self.healer, self.recovery = EnsureExportsTask(api.backend), RecoveryLoop(api.backend)
        self.healer.run_once()
        self.seen: list[dict[str, str]] = []
        real = self.driver.grant

        def grant(*args: Any) -> Any:
            answer = real(*args)
            # The manager would take an error here for one of the backend.
            self.seen.append(self.modes())
            return answer

        self.checked = mock.patch.object(self.driver, "grant", grant)
        self.checked.start()

    def teardown(self) -> None:
        """Let recovery finish; then rows and backend agree, and no move is half done."""
        self.recover()
        self.checked.stop()

    def modes(self) -> dict[str, str]:
        """Return what the backend has granted."""
        return dict(self.driver._granted.get(self.volume, {}))

    def rows(self) -> list[dict[str, Any]]:
        """Return the attachments."""
        return db_rows.list_attachments(self.volume)

    def ask(self, method: str, path: str, body: Any = None, **faults: str) -> None:
        """Make a call while the backend has faults."""
        with self.driver.faults(**faults):
            answer = self.api.request(method, path, body, token=wsgi_api.ADMIN, version=VERSION)
        assert answer.status in ANSWERS, (method, path, body, answer)

    def attach(self, host: str, fault: str, **more: str) -> None:
        """Attach the volume, or begin a move."""
        connector = {"host": host, "initiator": f"iqn.2026-01.org.example:{host}"}
        body = {"volume_uuid": self.volume, "connector": connector, **more}
        self.ask("POST", "/attachments", {"attachment": body}, grant=fault)

    @stateful.initialize(host=HOSTS)
    def begin(self, host: str) -> None:
        """Attach it to a host."""
        self.attach(host, "well")

    @stateful.rule(host=HOSTS, fault=WORKS)
    def attach_another(self, host: str, fault: str) -> None:
        """Attach it without a move, which is refused while another host has it."""
        self.attach(host, fault)

    def destinations(self) -> list[dict[str, Any]]:
        """Return the attachments whose move is open."""
        return [row for row in self.rows() if row["move_from"]]

    def sources(self) -> list[dict[str, Any]]:
        """Return the attachments that may be moved."""
        return [row for row in self.rows() if row["state"] == "connected" and row["mode"] == "rw"]

    @stateful.precondition(lambda self: bool(self.sources()))
    @stateful.rule(data=st.data(), host=HOSTS, fault=WORKS)
    def begin_move(self, data: st.DataObject, host: str, fault: str) -> None:
        """Move one of the attachments."""
        self.attach(host, fault, move_from=data.draw(st.sampled_from(self.sources()))["id"])

    @stateful.precondition(lambda self: bool(self.destinations()))
    @stateful.rule(data=st.data(), grant=WORKS, revoke=WORKS)
    def finish_move(self, data: st.DataObject, grant: str, revoke: str) -> None:
        """Finish the move to one of the destinations."""
        identity = data.draw(st.sampled_from(self.destinations()))["id"]
        path = f"/attachments/{identity}/action"
        self.ask("POST", path, {"finish_move": {}}, grant=grant, revoke=revoke)

    @stateful.precondition(lambda self: bool(self.rows()))
    @stateful.rule(data=st.data(), force=st.booleans(), grant=WORKS, revoke=WORKS)
    def delete(self, data: st.DataObject, *, force: bool, grant: str, revoke: str) -> None:
        """Delete one of them: roll back, or end a source."""
        identity = data.draw(st.sampled_from(self.rows()))["id"]
        path = f"/attachments/{identity}?force={force}".lower()
        self.ask("DELETE", path, grant=grant, revoke=revoke)

    @stateful.precondition(lambda self: bool(self.rows()))
    @stateful.rule(data=st.data(), grant=WORKS, revoke=WORKS)
    def fence(self, data: st.DataObject, grant: str, revoke: str) -> None:
        """Fence the host of one of them for a moment."""
        host = data.draw(st.sampled_from(self.rows()))["host"]
        if host is not None:
            body = {"fence": {"reason": "drawn"}}
            self.ask("POST", f"/hosts/{host}/fence", body, grant=grant, revoke=revoke)
            self.ask("POST", f"/hosts/{host}/unfence", {"unfence": None})

    @stateful.rule()
    def restart_backend(self) -> None:
        """Let the backend lose its exports, and get them again."""
        self.driver.restart()
        self.healer.run_once()

    @stateful.rule()
    def recover(self) -> None:
        """Let recovery finish all that is open; rows and backend agree then."""

        def is_settled() -> bool:
            self.recovery._backoff.clear()
            self.recovery._resumed = False
            self.recovery.run_once()
            expected = {row["id"]: row["mode"] for row in self.rows() if row["host"]}
            failed = [row["id"] for row in self.rows() if row["state"] == "connect_failed"]
            return self.modes() == {k: v for k, v in expected.items() if k not in failed}

        wait_until(is_settled, lambda: (self.rows(), self.modes()))
        ids = {row["id"] for row in self.rows()}
        for row in self.rows():
            if row["state"] in {"connected", "attached"}:
                assert row["move_from"] is None or row["move_from"] in ids, row

    @stateful.invariant()
    def one_host_may_write(self) -> None:
        """Count the writers after each grant, and now."""
        for modes in (*self.seen, self.modes()):
            writers = [identity for identity, mode in modes.items() if mode == "rw"]
            assert len(writers) <= 1, (modes, self.rows())
        self.seen.clear()


class MovesStateMachineTest(unittest.TestCase):
    """One API and one manager, many stories."""

    def test_random_calls_leave_one_writer(self):
        api = state_machines.start_api(self)
        state_machines.run(lambda: Machine(api), STEPS)
