# SPDX-License-Identifier: Apache-2.0
"""All metrics of attachd; for the recorder, the exporter and the tests."""

from typing import NamedTuple

FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds, from a fast database statement to a slow storage operation."""


class Metric(NamedTuple):
    """One metric.

    :ivar name: in full, as Prometheus shows it; a histogram's without its suffixes
    :ivar kind: counter, histogram or gauge
    :ivar help: one line
    :ivar labels: their names, in the order of the values
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def _metric(kind: str, name: str, text: str, *labels: str) -> Metric:
    return Metric(f"attachd_{name}", kind, text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return _metric("counter", f"{name}_total", text, *labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return _metric("histogram", f"{name}_duration_seconds", text, *labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return _metric("gauge", name, text, *labels)


API_REQUESTS = _counter(
    "api_requests", "Requests that the API has answered.", "method", "endpoint", "status"
)
API_DURATION = _histogram(
    "api_request", "How long the API took for a request.", "method", "endpoint"
)
RPC_CALLS = _counter(
    "rpc_calls", "Calls to managers and agents, as their senders saw them.", "method", "outcome"
)
RPC_DURATION = _histogram("rpc_call", "How long senders waited for an answer.", "method")
SERVED = _counter("served", "Calls that a backend has worked on.", "server", "method", "outcome")
SERVED_DURATION = _histogram(
    "served", "How long a backend worked on a call, waiting for its turn too.", "server", "method"
)
STEPS = _counter(
    "steps", "Steps of attaches, detaches and the like.", "backend", "step", "outcome"
)
STEP_DURATION = _histogram("step", "How long a storage driver took for a step.", "backend", "step")
RECOVERED = _counter("recovery_actions", "Recovery actions of a manager.", "backend", "action")
STATEMENTS = _counter("database_statements", "SQL statements, without what ends transactions.")
COMMITS = _counter("database_commits", "Transactions that were committed.")

ATTACHMENTS = _gauge("attachments", "Attachments, by kind and state.", "kind", "state")
VOLUMES = _gauge("volumes", "Volumes, by status.", "status")
OVERDUE = _gauge("overdue", "Rows that have been on their way for too long.", "kind", "state")
BACKEND_UP = _gauge("backend_up", "1: the backend reports, and its storage works.", "backend")
BACKEND_AGE = _gauge(
    "backend_report_age_seconds", "Seconds since the backend's last report.", "backend"
)
AGENTS = _gauge("agents", "Agents of hosts, up or down.", "status")
MANAGERS = _gauge("manager_processes", "Processes of managers that count as living.")
UNREAD_EVENTS = _gauge("unread_events", "Events that no follower has read yet.")
DATABASE_UP = _gauge("database_up", "1: the database answered when it was asked last.")
COUNT_AGE = _gauge("count_age_seconds", "Seconds since the rows were counted last.")
BUILD = _gauge("build_info", "Always 1; the label tells what runs.", "version")

ALL: tuple[Metric, ...] = tuple(each for each in globals().values() if isinstance(each, Metric))
COUNTED = tuple(each for each in ALL if each.kind != "gauge")
