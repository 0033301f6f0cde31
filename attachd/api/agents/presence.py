# SPDX-License-Identifier: Apache-2.0
"""Checks of whether the agent of a host can work, and the connector that it reports."""

import datetime
from typing import Any

from attachd import exception
from attachd.db import host_fences
from attachd.db.agents import agent_store, machines


def connector(host: str) -> dict[str, Any]:
    """Return the connector of a host, as its agent reports it.

    :returns: a connector, as of os-brick's get_connector_properties(), with the name of the host
        that callers use and without a mountpoint
    :raises AgentNotFound: the host is unknown
    :raises HostFenced: its agent does not report, and it is fenced or drained
    :raises AgentUnavailable: its agent does not report
    :raises AgentConflict: two machines report for it
    :raises Conflict: the agent reports that nothing can be attached there
    """
    row = agent_store.get(host)
    machines.check_single(row)
    if not row["alive"]:
        host_fences.check(host)
        raise exception.AgentUnavailable(host=host, since=since(row["seen_at"]))
    reported = row["connector"]
    if not reported:
        error = row["error"] or "it has no connector."
        raise exception.Conflict(
            reason=f"Host {host} cannot attach volumes, its agent reports: {error}"
        )
    connector = {name: value for name, value in reported.items() if name != "mountpoint"}
    return {**connector, "host": host}


def check(host: str, alternative: str) -> None:
    """Check that the agent of a host can do its part.

    :param alternative: a sentence for the message: what can be done without the agent
    :raises AgentUnavailable: it does not report, or was removed
    :raises AgentConflict: two machines report for the host
    """
    try:
        row = agent_store.get(host)
    except exception.AgentNotFound:
        raise unavailable(host, "since it was removed", alternative) from None
    try:
        machines.check_single(row)
    except exception.AgentConflict as error:
        raise exception.AgentConflict(f"{error} {alternative}", **error.details) from None
    if not row["alive"]:
        raise unavailable(host, since(row["seen_at"]), alternative)


def unavailable(host: str, since: str, alternative: str) -> exception.AgentUnavailable:
    """Return the error of an unavailable agent, with what can be done without it."""
    known = exception.AgentUnavailable(host=host, since=since)
    return exception.AgentUnavailable(f"{known} {alternative}", **known.details)


def since(seen_at: datetime.datetime | None) -> str:
    """Return the time of the last report in the form that AgentUnavailable's message needs."""
    return "yet" if seen_at is None else f"since {seen_at:%Y-%m-%d %H:%M:%S} UTC"
