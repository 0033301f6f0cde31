#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what the reports of many agents cost, and how an overload ends.

Simulated agents send reports as attachd-agent sends them: each into its own exchange, from which
its queue gets them, with a reply queue of its own.  They are in one process and share one
connection; their hosts and attachments are inserted by SQL.  A private attachd-manager answers.
Then all of them report several times as often for a while, and it is measured how long it takes
until each report is answered in time again.
"""

import argparse
from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import heapq
import json
from pathlib import Path
import statistics
import sys
import time
from typing import Any, NamedTuple
import uuid

from cycle import processes, report, started
from kombu.connection import Connection
import oslo_messaging as messaging
import sqlalchemy as sa

from attachd import service
from attachd.conf import CONF
from attachd.db import models
from attachd.db.agents import agent_store
from attachd.db.secrets import encryption
from attachd.rpc import (
    admission,
    agent_manager_api,
    broker,
    desired_states,
    host_queues,
    transport,
)

KEY = "k" * 48
BACKEND = "measured"
MAX_RECOVERY = 600.0
"""Seconds after an overload that are waited for the end of its effects."""
MAX_NEW = 0.01
"""The share of agents that may have no accepted report when the measurement begins."""
_ROWS = 2_000
"""Rows that one statement inserts."""


@dataclasses.dataclass
class Agent:
    """A simulated agent.

    :ivar known: what it keeps of the last answer, as the real one does
    """

    host: str
    devices: list[dict[str, Any]]
    process: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    token: str | None = None
    lease: int | None = None
    accepted: int | None = None
    desired: str = ""

    def next_call(self) -> tuple[str, dict[str, Any]]:
        """Return the method and the argument of the next report."""
        if self.accepted is None:
            return "report", {"report": self._report()}
        return "renew", {"renewal": self._renewal(self.accepted)}

    def _renewal(self, content_number: int) -> dict[str, Any]:
        return {
            "content_number": content_number,
            "desired": self.desired,
            "boot_id": self._boot_id(),
            "lease": self.lease,
            "machine_id": self.host,
            "token": self._next_token(),
        }

    def _report(self) -> dict[str, Any]:
        return {
            "connector": _connector(self.host),
            "devices": self.devices,
            "connector_type": "kernel",
            "version": service.version(),
            "error": None,
            "boot_id": self._boot_id(),
            "stops_writers": True,
            "observed": None,
            "lease": self.lease,
            "machine_id": self.host,
            "libvirt_secrets": False,
            "max_attachments": None,
            "token": self._next_token(),
        }

    def _boot_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, self.host))

    def _next_token(self) -> dict[str, Any]:
        self.number += 1
        former, self.token = self.token, uuid.uuid4().hex
        return {
            "process": self.process,
            "start": 1,
            "number": self.number,
            "previous": former,
            "next": self.token,
            "is_repeated": False,
            "has_rival": False,
            "is_known": self.number > 1,
        }

    def take(self, method: str, number: int, answer: Any) -> bool:
        """Take an answer; return whether it has accepted the report."""
        if method == "renew":
            if not answer:
                self.accepted = None
            return bool(answer)
        lease = next((item["lease"] for item in answer if "lease" in item), None)
        if lease == self.lease:
            self.accepted, self.desired = number, desired_states.digest(answer)
        self.lease = lease
        return True


def _connector(host: str) -> dict[str, Any]:
    return {
        "host": host,
        "ip": "192.0.2.1",
        "initiator": f"iqn.2005-03.org.open-iscsi:{host}",
        "nqn": f"nqn.2014-08.org.nvmexpress:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, host)}",
        "multipath": True,
        "platform": "x86_64",
        "os_type": "linux",
        "do_local_attach": False,
    }


class _Sent(NamedTuple):
    """A report without an answer.

    :ivar number: of the report, in its process
    :ivar time: when it was sent, in seconds
    """

    agent: Agent
    method: str
    number: int
    time: float


class Sender:
    """Sends the reports of all agents, and takes the answers; used by one thread.

    :ivar durations: seconds from each report to its answer
    :ivar failures: answers that are errors, by their class
    """

    def __init__(self, url: messaging.TransportURL, agents: list[Agent]) -> None:
        self._agents = {agent.host: agent for agent in agents}
        self._connection = broker.connect(url, "agents", heartbeat=0)
        self._channel = self._connection.channel()
        # Each agent waits for the broker to confirm its own report; this process waits for none.
        self._publisher = _open_channel(url)
        self._url = url
        self._sent: dict[str, _Sent] = {}
        self.durations: list[float] = []
        self.failures: dict[str, int] = {}
        self.lost = 0

    def prepare(self) -> None:
        """Declare what each agent declares at its start."""
        calls = host_queues.CallQueues(self._url)
        for host in self._agents:
            exchange, name = host_queues.host_topic(host), host_queues.queue_name(host)
            durable = broker.is_durable(self._url)
            self._channel.exchange_declare(exchange, "topic", durable=durable, auto_delete=False)
            calls.declare(host, self._connection)
            self._channel.queue_bind(name, exchange, name)
            reply = admission.reply_queues(host)[0]
            broker.declare_transient(self._url, self._channel, reply)
            self._channel.basic_consume(reply, callback=self._receive, no_ack=True)

    def wait_for_managers(self, processes: int) -> None:
        """Wait until each manager process reads the queue of each agent."""
        for host in self._agents:
            name = host_queues.queue_name(host)
            while True:
                found = self._channel.queue_declare(name, passive=True)
                if found.consumer_count >= processes:
                    break
                time.sleep(0.5)

    def count_new(self) -> int:
        """Return how many agents send all that they have with the next report."""
        return sum(agent.accepted is None for agent in self._agents.values())

    def send(self, agent: Agent) -> None:
        """Send one report."""
        message_id = uuid.uuid4().hex
        method, said = agent.next_call()
        content = {
            "method": method,
            "args": {"host": agent.host, "key": KEY, **said},
            "version": agent_manager_api.VERSION,
            "_msg_id": message_id,
            "_reply_q": admission.reply_queues(agent.host)[0],
            "_timeout": None,
            "_unique_id": uuid.uuid4().hex,
        }
        envelope = {"oslo.version": "2.0", "oslo.message": json.dumps(content)}
        body = self._publisher.prepare_message(
            json.dumps(envelope),
            content_type="application/json",
            content_encoding="utf-8",
            properties={"expiration": str(agent_manager_api.TIMEOUT * 1000)},
        )
        self._sent[message_id] = _Sent(agent, method, agent.number, time.monotonic())
        self._publisher.basic_publish(
            body,
            exchange=host_queues.host_topic(agent.host),
            routing_key=host_queues.queue_name(agent.host),
        )

    def _receive(self, message: Any) -> None:
        content = json.loads(json.loads(message.body)["oslo.message"])
        sent = self._sent.pop(content["_msg_id"], None)
        if sent is None:
            return
        if failure := content.get("failure"):
            name = json.loads(failure)["class"]
            self.failures[name] = self.failures.get(name, 0) + 1
        else:
            self.durations.append(time.monotonic() - sent.time)
            if not sent.agent.take(sent.method, sent.number, content["result"]):
                self.send(sent.agent)

    def run(self, interval: float, seconds: float) -> None:
        """Have each agent report once per interval for a time."""
        began = time.monotonic()
        agents = list(self._agents.values())
        turns = [(began + interval * index / len(agents), index) for index in range(len(agents))]
        heapq.heapify(turns)
        while (now := time.monotonic()) < began + seconds:
            due, index = turns[0]
            if due <= now:
                heapq.heapreplace(turns, (due + interval, index))
                self.send(agents[index])
                self._drain(0)
            else:
                self._drain(min(due - now, 0.05))

    def settle(self, seconds: float) -> None:
        """Wait for answers."""
        deadline = time.monotonic() + seconds
        while self._sent and time.monotonic() < deadline:
            self._drain(0.05)

    def _drain(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            self._connection.drain_events(timeout=timeout or 0.0005)

    def forget(self) -> None:
        """Begin to count anew, and count what was sent and not answered in time as lost."""
        limit = time.monotonic() - agent_manager_api.TIMEOUT
        late = [key for key, sent in self._sent.items() if sent.time < limit]
        for key in late:
            del self._sent[key]
        self.lost = len(late)
        self.durations, self.failures = [], {}


def _open_channel(url: messaging.TransportURL) -> Any:
    """Return a channel on which the broker confirms nothing."""
    host = url.hosts[0]
    return Connection(
        hostname=host.hostname,
        port=host.port,
        userid=host.username,
        password=host.password,
        virtual_host=url.virtual_host or "/",
    ).channel()


def main() -> int:
    """Run the benchmark that the arguments describe.

    :returns: the exit code: 0 if all reports were answered in time, but for those of the overload
    """
    arguments = _parser().parse_args()
    with started.exiting_on_errors():
        content = _measure(arguments)
    print(report.grid(content["lines"]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(content, indent=1))
    return 1 if content["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the reports of many agents.")
    parser.add_argument("--db", required=True, metavar="URL", help="a database that may be filled")
    parser.add_argument(
        "--rabbit", required=True, metavar="URL", help="with a virtual host of its own"
    )
    parser.add_argument("--agents", type=int, default=1_000, help="%(default)s")
    parser.add_argument("--attachments", type=int, default=10, help="of each: %(default)s")
    parser.add_argument("--interval", type=float, default=10.0, help="seconds: %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="%(default)s")
    parser.add_argument("--overload", type=float, default=0.0, help="seconds: %(default)s")
    parser.add_argument("--factor", type=float, default=5.0, help="of the overload: %(default)s")
    parser.add_argument("--workers", type=int, default=1, help="of the manager: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    shape = started.Shape(
        database=arguments.db,
        rabbit=arguments.rabbit,
        api_processes=1,
        api_threads=4,
        manager_workers=arguments.workers,
        # All attachments appear at once, and each would be observed for the first time.
        groups={"manager": {"condition_interval": "0"}},
    )
    with started.work_folder() as folder:
        backends = {BACKEND: {"driver": "fake"}}
        with started.production(folder, backends, shape) as running:
            agents = _insert(arguments)
            CONF([], project="attachd", default_config_files=[])
            messaging.get_rpc_transport(CONF, arguments.rabbit)  # registers its options
            CONF.set_override("transport_url", arguments.rabbit, "agent")
            sender = Sender(transport.agent_transport_url(), agents)
            sender.prepare()
            sender.wait_for_managers(arguments.workers)
            pids = {"manager": running.pids["manager"], **_servers(arguments.db)}
            return _run(arguments, sender, pids)


def _run(arguments: argparse.Namespace, sender: Sender, pids: dict[str, int]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    # All connect, and report for the first time, with all that they have.
    while not rows or (
        rows[0]["lost"] + sender.count_new() > arguments.agents * MAX_NEW
        and time.monotonic() - began < MAX_RECOVERY
    ):
        rows[:] = [_window("connecting", sender, pids, arguments.interval, arguments.interval)]
    rows[0]["until all do s"] = round(time.monotonic() - began, 1)
    rows.append(_window("normal", sender, pids, arguments.interval, arguments.seconds))
    if arguments.overload:
        interval = arguments.interval / arguments.factor
        rows.append(_window("overload", sender, pids, interval, arguments.overload))
        began = time.monotonic()
        while True:
            row = _window("after it", sender, pids, arguments.interval, arguments.interval)
            if row["lost"] + row["failed"] == 0 or time.monotonic() - began > MAX_RECOVERY:
                break
        row["recovered after s"] = round(time.monotonic() - began - arguments.interval, 1)
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    failed = any(row["lost"] + row["failed"] for row in rows if row["load"] == "normal")
    return {"rows": rows, "lines": lines, "failed": failed}


def _window(
    load: str, sender: Sender, pids: dict[str, int], interval: float, seconds: float
) -> dict[str, Any]:
    before = processes.cpu_seconds(pids)
    sender.run(interval, seconds)
    if load == "normal":
        sender.settle(agent_manager_api.TIMEOUT)
    used = processes.cpu_seconds(pids)
    durations, failures = sorted(sender.durations), sender.failures
    sender.forget()
    count = max(len(durations), 1)
    row = {
        "load": load,
        "reports": len(durations),
        "per s": round(len(durations) / seconds, 1),
        "p50 ms": round(1000 * statistics.median(durations or [0]), 1),
        "p99 ms": round(1000 * durations[int(0.99 * (count - 1))] if durations else 0, 1),
        "failed": sum(failures.values()),
        "lost": sender.lost,
        **{
            f"CPU ms {name}": round(1000 * (used[name] - before[name]) / count, 2) for name in pids
        },
    }
    print(*(f"{name} {value}," for name, value in row.items()), file=sys.stderr, flush=True)
    return row


def _servers(database: str) -> dict[str, int]:
    kind = processes.DATABASE[2:] if database.startswith("postgresql") else processes.DATABASE[:2]
    wanted = {"database": kind, "broker": processes.BROKER}
    found = {name: processes.named(commands) for name, commands in wanted.items()}
    return {name: pid for name, pid in found.items() if pid is not None}


def _insert(arguments: argparse.Namespace) -> list[Agent]:
    engine = sa.create_engine(arguments.db)
    hosts = [f"host-{number}" for number in range(arguments.agents)]
    agents = []
    tables: dict[sa.Table, list[dict[str, Any]]] = {
        models.volumes: [],
        models.attachments: [],
        # last, and each statement at once: managers read the names of hosts registered lately
        models.agents: [],
    }
    for host in hosts:
        tables[models.agents].append(
            {"host": host, "normal_name": host, "key_digest": agent_store.digest(KEY)}
        )
        devices = []
        for number in range(arguments.attachments):
            volume, attachment = _rows_of_attachment(host)
            tables[models.volumes].append(volume)
            tables[models.attachments].append(attachment)
            devices.append(_device(attachment, number))
        agents.append(Agent(host, devices))
    for table, rows in tables.items():
        for part in _parts(rows):
            with engine.begin() as connection:
                connection.execute(sa.insert(table), part)
    engine.dispose()
    return agents


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(rows), _ROWS):
        yield rows[first : first + _ROWS]


def _rows_of_attachment(host: str) -> tuple[dict[str, Any], dict[str, Any]]:
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    volume_id, attachment_id, project = models.new_id(), models.new_id(), "p" * 32
    volume = {
        "id": volume_id,
        "project_id": project,
        "user_id": "u",
        "name": "",
        "size_gib": 1,
        "state": "ready",
        "status": "in-use",
        "attach_status": "attached",
        "host": f"benchmark@{BACKEND}#pool",
        "backend_host": f"benchmark@{BACKEND}",
        "availability_zone": "nova",
        "provider": {},
        "admin_metadata": {},
        "created_at": now,
    }
    attachment = {
        "id": attachment_id,
        "volume_id": volume_id,
        "project_id": project,
        "user_id": "u",
        "kind": "attachment",
        "state": "attached",
        "mode": "rw",
        "host": host,
        "agent": host,
        "connector": _connector(host),
        "connection_info": {"driver_volume_type": "fake", "data": {"volume_id": volume_id}},
        "generation": 1,
        "created_at": now,
    }
    return volume, dict(encryption.bind(attachment, attachment_id))


def _device(attachment: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "attachment_id": attachment["id"],
        "volume_id": attachment["volume_id"],
        "path": f"/dev/sd{chr(ord('b') + number % 20)}",
        "size_bytes": 2**30,
        "mountpoint": None,
        "paths": [{"name": f"sd{chr(ord('b') + number % 20)}", "state": "active"}],
        "last_io_error": None,
        "filesystem": None,
        "filesystem_bytes": None,
        "growth": None,
    }


if __name__ == "__main__":
    sys.exit(main())
