# SPDX-License-Identifier: Apache-2.0
"""What people want to know of an attachment, a host or an agent, for the format text."""

from collections.abc import Iterable, Mapping
from typing import Any

from attachd.cli import formatting
from attachd.cli.blockstorage import Agent, Attachment, Host

_IDS = ("attachment_id", "volume_id")
"""What a connection repeats."""

Description = dict[str, Any]
"""Fields by their titles; nested ones are sections."""


def attachment(found: Attachment) -> Description:
    """Return the description of an attachment, with the secrets of its connection."""
    condition = found.get("condition") or {}
    return {
        "Attachment": found["id"],
        "Status": _status(found),
        "Error": found.get("error"),
        "Volume": _volume(found),
        "Host": _place(found),
        "Device": found.get("device"),
        "Mountpoint": _unless(found.get("mountpoint"), "na"),
        "Mode": _unless(found.get("attach_mode"), "null"),
        "Condition": _condition(condition),
        "Server": found.get("instance"),
        "Project": found.get("project_id"),
        "Created": formatting.since(found.get("created_at")),
        "Expires": formatting.plain_time(found.get("expires_at")),
        "Moves from": found.get("move_from"),
        "Paths": condition.get("paths") or None,
        "Shares its connection with": found.get("shared_connections_by_attachment"),
        "Connection": _connection(found.get("connection_info") or {}),
    }


def _connection(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name not in _IDS}


def _status(found: Attachment) -> str:
    status = str(found["status"])
    if found.get("detached_at"):
        return f"{status} {formatting.since(found['detached_at'])}"
    if status == "attached" and found.get("attached_at"):
        return f"{status} since {formatting.since(found['attached_at'])}"
    return status


def _volume(found: Attachment) -> str:
    name = found.get("volume_name")
    return f"{name} ({found['volume_id']})" if name else str(found["volume_id"])


def _place(found: Attachment) -> str | None:
    agent = found.get("agent")
    return f"{agent}, by its agent" if agent else found.get("attached_host")


def _condition(condition: Mapping[str, Any]) -> str:
    if not condition:
        return ""
    message = f": {condition['message']}" if condition.get("message") else ""
    changed = condition.get("changed_at")
    return (
        f"{condition['state']}{f' since {formatting.since(changed)}' if changed else ''}{message}"
    )


def _unless(value: str | None, nothing: str) -> str | None:
    return None if value == nothing else value


def row_of_attachment(found: Attachment) -> dict[str, Any]:
    """Return a line for a list of the attachments of a host."""
    return {
        "Attachment ID": found["id"],
        "Volume": found.get("volume_name") or found.get("volume_id"),
        "Device": found.get("device"),
        "Status": found["status"],
        "Condition": (found.get("condition") or {}).get("state"),
        "Age": formatting.Age(found.get("attached_at") or found.get("created_at")),
    }


def host(found: Host, agent: Agent | None, attachments: Iterable[Attachment]) -> Description:
    """Return the description of a host.

    :param agent: None: it has none, or the caller may not see it
    """
    drain = found["drain"]
    return {
        "Host": found["host"],
        "Fenced": _fenced(found),
        "Drained": _drained(drain),
        "Agent": _agent_state(agent) if agent else found["agent_state"] or "none",
        "Error": agent and agent["error"],
        "Lease": _lease(agent),
        "Initiators": ", ".join(found.get("initiators", ())),
        "Attachments": [row_of_attachment(item) for item in attachments] or "none",
        "Drain": [_row_of_drain(item) for item in (drain or {}).get("attachments", ())],
    }


def _fenced(found: Host) -> str:
    if not found["fenced"]:
        return "no"
    end = " It ends when the agent reports a new start." if found.get("lift") == "auto" else ""
    return f"since {formatting.since(found['fenced_at'])}: {found['reason']}.{end}"


def _drained(drain: Mapping[str, Any] | None) -> str:
    if drain is None:
        return "no"
    counts = ", ".join(f"{count} {status}" for status, count in drain["counts"].items())
    reason = f": {drain['reason']}" if drain["reason"] else ""
    return (
        f"since {formatting.since(drain['drained_at'])}{reason}{f'; {counts}' if counts else ''}"
    )


def _row_of_drain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Attachment ID": item["attachment_id"],
        "Volume ID": item["volume_id"],
        "Status": item["status"],
        "Reason": item["reason"],
    }


def _agent_state(found: Agent) -> str:
    reported = found["last_seen"]
    if reported is None:
        return f"{found['state']}, has never reported"
    return f"{found['state']}, last report {formatting.since(reported)}"


def _lease(found: Agent | None) -> str:
    lease = (found or {}).get("lease")
    if not lease:
        return ""
    if lease["lost_at"]:
        done = {"fence": ", and it was fenced"}.get(lease["lost_action"], "")
        return f"lost since {formatting.since(lease['renewed_at'])}{done}"
    if lease["seconds"] is None:
        return "without end"
    return f"{lease['seconds']} s, until {formatting.plain_time(lease['expires_at'])} UTC"


def agent(found: Agent) -> Description:
    """Return the description of an agent, without secrets."""
    other = found.get("conflict")
    return {
        "Host": found["host"],
        "State": _agent_state(found),
        "Error": found["error"],
        "Lease": _lease(found),
        "Connector type": found["connector_type"],
        "Version": found["version"],
        "Max attachments": found.get("max_attachments"),
        "Boot ID": found.get("boot_id"),
        "Machine ID": found.get("machine_id"),
        "Other machine": other,
        "Connector": formatting.without_secrets(found["connector"] or {}),
        "Devices": [_row_of_device(item) for item in found["devices"]] or "none",
        "Other devices": [_row_of_device(item) for item in found.get("other_devices") or ()],
    }


def _row_of_device(item: Mapping[str, Any]) -> dict[str, Any]:
    size = item.get("size_bytes")
    return {
        "Device": item["path"],
        "GiB": None if size is None else f"{size / 2**30:g}",
        "Volume ID": item["volume_id"],
        "Mountpoint": item.get("mountpoint"),
        "Attachment ID": item["attachment_id"],
        "Target": item.get("target"),
    }
