# SPDX-License-Identifier: Apache-2.0
"""Commands for hosts: fence them, which ends their access to all volumes with the backend's proof,
and drain them, which takes them out of service in the usual way.
"""

import argparse
import contextlib
import time
from typing import Final

from openstack import exceptions

from attachd.cli import descriptions, formatting
from attachd.cli.blockstorage import Agent, Attachment, Host, HostControl
from attachd.cli.commands import BatchCommand, Describe, Lister
from attachd.cli.events import seconds
from attachd.cli.options import Option, option
from attachd.cli.table_layout import Layout

_HOST: Final = Option(("host",), {"metavar": "HOST", "help": "name of the host"})
_HOSTS: Final = Option(("hosts",), {"metavar": "HOST", "nargs": "+", "help": "name of a host"})
_COLUMNS: Final = {
    "Host": "host",
    "Fenced At": "fenced_at",
    "Drained At": "drained_at",
    "Reason": "reason",
    "Agent State": "agent_state",
    "Attachments": "attachments",
}
_RESULTS: Final = {
    "Attachment ID": "attachment_id",
    "Volume ID": "volume_id",
    "Instance ID": "instance_uuid",
    "Result": "result",
    "Error": "reason",
}
_DONE: Final = frozenset({"proved", "asserted"})
_DETACHES: Final = {
    "Attachment ID": "attachment_id",
    "Volume ID": "volume_id",
    "Instance ID": "instance_uuid",
    "Status": "status",
    "Error": "reason",
}
_UNDER_WAY: Final = frozenset({"waiting", "detaching"})
_UNFINISHED: Final = _UNDER_WAY | {"failed", "left"}
_FENCE_ADVICE: Final = (
    "If it does not end: the fence is stored, and managers go on when the command ends. 'attachd "
    "host-show {host}' shows what is left, and the same command again tries it."
)
_DRAIN_ADVICE: Final = (
    "If it does not end: Ctrl-C ends the command, and the drain goes on. 'attachd host-show HOST' "
    "shows what each attachment waits for; --within limits the time."
)
_TIMEOUT: Final = 3600.0
"""Seconds that a drain is waited for."""
_PAUSE: Final = 1.0
"""Seconds between two reads of a drain."""


class FenceHost(Lister):
    """End the access of a host to all volumes, and keep it from attaching any.

    The host takes no part: it may be dead or hang. Of each of its attachments the result is shown:
    "proved", if the backend lists neither the host nor a session of it; "asserted", if the backend
    says that its access has ended and cannot list it; "pending", if that goes on; or "failed". The
    exit code is 1 as long as some are pending or have failed: run the command again.
    """

    arguments = (
        _HOST,
        option("--reason", metavar="TEXT", required=True, help="why; it is recorded"),
        option(
            "--lift",
            choices=("auto", "manual"),
            default="manual",
            help="auto: the fence ends when the agent of the host reports that it was started "
            "again and has no device left; manual: only by host unfence (default: %(default)s)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Fence the host."""
        storage = HostControl(self.connection)
        step = f"Waiting for the proof of the storage that {parsed_args.host} has no access"
        with self.waiting(step, _FENCE_ADVICE.format(host=parsed_args.host)):
            results = storage.fence(parsed_args.host, parsed_args.reason, parsed_args.lift)
        self._unfinished = any(item["result"] not in _DONE for item in results)
        return formatting.listed(results, _RESULTS)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Fence the host and return the exit code."""
        return int(super().run(parsed_args) or self._unfinished)


class UnfenceHosts(BatchCommand):
    """Lift the fences of hosts that were checked: volumes can be attached there again."""

    arguments = (_HOSTS,)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Lift each fence."""
        return self.run_each(parsed_args.hosts, HostControl(self.connection).unfence)


class DrainHost(Lister):
    """Take a host out of service: nothing new is attached there, and what is asked is detached.

    Its attachments are shown, each with its status: "attached", if it is not asked to go;
    "waiting", "detaching" or "detached"; "failed"; or "left", if only another service can detach
    it, such as Compute from a server. The exit code is 1 as long as some that are asked to go are
    still there; the error says what they wait for. The work goes on without the command; what has
    failed is tried again when the command runs again. A drained host stays out of service until it
    is resumed.
    """

    arguments = (
        _HOST,
        option("--reason", metavar="TEXT", help="why; it is shown to users who attach there"),
        option(
            "--detach-all",
            action="store_true",
            help="detach all that the agent of the host has attached",
        ),
        option(
            "--detach", metavar="ID", action="append", help="detach this attachment; repeatable"
        ),
        option("--wait", action="store_true", help="wait until no more can be detached"),
        # --timeout is taken: it is that of each request, an option of the cloud.
        option(
            "--within",
            metavar="SECONDS",
            type=seconds,
            default=_TIMEOUT,
            help="with --wait: wait no longer than this (default: %(default)g)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Drain the host."""
        if parsed_args.detach_all and parsed_args.detach:
            self.refuse("give either --detach-all or --detach")
        asked = {
            "reason": parsed_args.reason,
            "detach": "all" if parsed_args.detach_all else parsed_args.detach,
        }
        requested = {name: value for name, value in asked.items() if value}
        storage = HostControl(self.connection)
        deadline = time.monotonic() + (parsed_args.within if parsed_args.wait else 0)
        drain: Host = {}
        with self.waiting(lambda: _drain_step(parsed_args.host, drain), _DRAIN_ADVICE):
            drain = storage.drain(parsed_args.host, requested)["drain"] or {}
            while _is_under_way(drain) and time.monotonic() + _PAUSE <= deadline:
                time.sleep(_PAUSE)
                drain = storage.host(parsed_args.host)["drain"] or {}
        self._unfinished = bool(_UNFINISHED & drain.get("counts", {}).keys())
        return formatting.listed(drain.get("attachments", ()), _DETACHES)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Drain the host and return the exit code."""
        return int(super().run(parsed_args) or self._unfinished)


def _drain_step(host: str, drain: Host) -> str:
    """Return what a drain waits for, in words."""
    attachments = drain.get("attachments", ())
    left = [item for item in attachments if item["status"] in _UNDER_WAY]
    if not left:
        return f"Waiting for host {host} to detach"
    asked = sum(item["status"] != "attached" for item in attachments)
    return (
        f"Waiting for host {host}: {asked - len(left)} of {asked} detached, next volume "
        f"{left[0]['volume_id']}"
    )


def _is_under_way(drain: Host) -> bool:
    """Return whether a drain goes on by itself; what has a reason needs an operator."""
    return any(
        item["status"] in _UNDER_WAY and item["reason"] is None
        for item in drain.get("attachments", ())
    )


class ResumeHosts(BatchCommand):
    """Put drained hosts back into service: volumes can be attached there again."""

    arguments = (_HOSTS,)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Resume each host."""
        return self.run_each(parsed_args.hosts, HostControl(self.connection).resume)


class ListHosts(Lister):
    """List the hosts that are fenced or drained."""

    layout = Layout((), ("Agent State", "Drained At", "Fenced At"))

    def take_action(
        self,
        parsed_args: argparse.Namespace,  # noqa: ARG002 (cliff gives it to every command)
    ) -> formatting.Listed:
        """Return the hosts."""
        return formatting.listed(map(_flat, HostControl(self.connection).hosts()), _COLUMNS)


class ShowHost(Describe):
    """Show whether a host is fenced or drained, and its attachments that give it access.

    For people it shows its agent and the lease as well, and a table of the attachments.
    """

    arguments = (_HOST,)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the host."""
        storage = HostControl(self.connection)
        found = storage.host(parsed_args.host)
        if not self.is_for_people(parsed_args):
            return formatting.shown(found)
        agent = _find_agent(storage, found)
        attachments = _list_attachments(storage, found)
        return formatting.shown(descriptions.host(found, agent, attachments))


def _find_agent(storage: HostControl, host: Host) -> Agent | None:
    """Return the agent of a host; None: it has none, or the user may not see it."""
    if host["agent_state"] is None:
        return None
    try:
        return storage.agent(host["host"])
    except exceptions.HttpException:
        return None


def _list_attachments(storage: HostControl, host: Host) -> list[Attachment]:
    """Return the attachments of a host; of those that the user may not see only the ids."""
    known: dict[str, Attachment] = {}
    for name in ("attached_host", "agent"):
        query = {name: host["host"], "all_tenants": "1"}
        with contextlib.suppress(exceptions.HttpException):
            known |= {item["id"]: item for item in storage.attachments(query, detail=True)}
    others = [key for key in host["attachment_ids"] if key not in known]
    return [*known.values(), *({"id": key, "status": "unknown"} for key in others)]


def _flat(host: Host) -> Host:
    """Return a host with the time and the reason of its drain, unless it is fenced as well."""
    drain = host["drain"] or {}
    reason = host["reason"] if host["fenced"] else drain.get("reason")
    return {
        **host,
        "fenced_at": formatting.Time(host["fenced_at"]),
        "drained_at": formatting.Time(drain.get("drained_at")),
        "reason": reason,
        "attachments": formatting.Count(host["attachment_ids"]),
    }
