# SPDX-License-Identifier: Apache-2.0
"""Commands for attachments in the API; they change nothing on this host."""

import argparse
from collections.abc import Sequence
import contextlib
import datetime
import functools
from pathlib import Path
from typing import Any, ClassVar

from attachd import durations, exception
from attachd.agent.journal import Journal, Owner
from attachd.cli import agent_wait, connection_formats, descriptions, formatting, options
from attachd.cli.blockstorage import BlockStorage
from attachd.cli.commands import BatchCommand, Describe, Lister, ShowOne
from attachd.cli.options import Option, boolean, option
from attachd.cli.table_layout import Layout
from attachd.states import AttachmentState

_ATTACHMENT = Option(("attachment",), {"metavar": "ATTACHMENT", "help": "ID of the attachment"})
_CONNECTOR = (
    option("--initiator", metavar="IQN", help="the iSCSI name of the host"),
    option("--ip", metavar="ADDRESS", help="the address of the host"),
    option("--host", metavar="NAME", help="the name of the host"),
    option("--platform", metavar="NAME", help="its kind of processor; default: x86_64"),
    option("--ostype", metavar="NAME", help="its operating system; default: linux2"),
    option(
        "--multipath",
        nargs="?",
        const=True,
        type=boolean,
        metavar="True|False",
        help="whether the host uses several paths; alone it means True, default: False",
    ),
    option("--mountpoint", metavar="DEVICE", help="where the host will have the volume"),
)
_DEFAULTS = {"platform": "x86_64", "ostype": "linux2", "multipath": False}
_CREATE = (
    options.VOLUME,
    Option(
        ("instance_uuid",),
        {"metavar": "INSTANCE_UUID", "nargs": "?", "help": "ID of the server it is for, if any"},
    ),
    option(
        "--connect",
        nargs="?",
        const=True,
        type=boolean,
        metavar="True|False",
        help="let the host in that the other options describe; alone it means True, default: "
        "False, which only reserves the volume",
    ),
    *_CONNECTOR,
    options.MODE,
    option(
        "--on",
        metavar="HOST",
        help="have the agent of this host attach the volume there; see agent-list",
    ),
    option(
        "--expires-in",
        type=durations.age,
        metavar="DURATION",
        help="remove the reservation after 90s, 30m, 2h or 7d unless a host is connected by then",
    ),
    option(
        "--instead-of",
        metavar="ATTACHMENT",
        help="first end the access of this attachment, with the backend's proof (admin only)",
    ),
    option(
        "--move-from",
        metavar="ATTACHMENT",
        help="take over from this attachment of another host when the move is finished: see "
        "attachment-finish-move",
    ),
    option(
        "--dry-run",
        action="store_true",
        help="only show whether all this is possible now, and why not",
    ),
)
_TIMES = ("created_at", "attached_at", "detached_at")
_RESERVING = frozenset({"volume", "instance_uuid", "--mode", "--expires-in", "--dry-run"})
"""The arguments of a creation that a reservation has."""
_STATUSES = sorted({state.wire for state in AttachmentState})
_LIST = (
    option("--volume-id", metavar="ID", help="only those of a volume"),
    option("--instance-id", metavar="ID", help="only those of a server"),
    option(
        "--status",
        choices=_STATUSES,
        metavar="STATUS",
        help=f"only those of a status: {', '.join(_STATUSES)}",
    ),
    option("--host", metavar="NAME", help="only those at a host (admin only)"),
    option("--agent", metavar="HOST", help="only those that the agent of a host sees to"),
    option(
        "--older-than", type=durations.age, metavar="AGE", help="only those made 2h ago or earlier"
    ),
    option(
        "--unchanged-for",
        type=durations.age,
        metavar="AGE",
        help="only those without a change for 30m or longer",
    ),
    option(
        "--all-projects", action="store_true", help="also those of other projects (admin only)"
    ),
    option("--limit", type=int, metavar="NUMBER", help="not more than so many"),
    option("--marker", metavar="ID", help="begin after this attachment"),
    option(
        "--deleted",
        action="store_true",
        help="list deleted attachments instead, the last one first, as long as their events are "
        "kept; of the other filters only --volume-id, --all-projects and --deleted-since",
    ),
    option(
        "--deleted-since",
        type=durations.age,
        metavar="AGE",
        help="with --deleted: only those deleted in the last 30m, 2h or 7d",
    ),
    option(
        "--long",
        action="store_true",
        help="show all columns: also the ids of volume and server, the mode, the times and the "
        "project",
    ),
)
_SHORT = {
    "ID": "id",
    "Volume ID": "volume_id",
    "Instance ID": "instance",
    "Status": "status",
}
"""The columns that a list without details has."""
_COLUMNS = _SHORT | {
    "Volume": "volume",
    "Host": "attached_host",
    "Device": "device",
    "Condition": "condition",
    "Age": "age",
}
_LONG = {
    "Mode": "attach_mode",
    "Created At": "created_at",
    "Attached At": "attached_at",
    "Project ID": "project_id",
}
_LONG_DELETED = _LONG | {"Detached At": "detached_at"}


_BY_AGENT = {
    "attachment_id": "id",
    "volume_id": "volume_id",
    "host": "agent",
    "device": "device",
    "attach_mode": "attach_mode",
    "status": "status",
}
"""What is shown of an attachment that an agent has made."""


_ADVICE = (
    "If it does not end: Ctrl-C ends the command, and the service goes on. 'attachd "
    "attachment-timeline ATTACHMENT' says which step is the last one, 'attachd-manage service "
    "list' how the storage is."
)


class CreateAttachment(ShowOne):
    """Reserve a volume and, with --connect True, let a host in.

    What is shown then is what the host needs to reach the volume, its secrets included. Nothing
    is done on the host itself: "attachd local-attach" does both on this one. With --on the agent
    of the host attaches the volume there, and its device is shown. With --dry-run nothing is done
    at all.
    """

    arguments = _CREATE

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Create the attachment."""
        self._check(parsed_args)
        storage = BlockStorage(self.connection)
        volume_id = storage.volume_id(parsed_args.volume)
        requested: dict[str, Any] = {"volume_uuid": volume_id}
        for name in ("instance_uuid", "mode", "instead_of", "move_from"):
            if (value := getattr(parsed_args, name)) is not None:
                requested[name] = value
        if parsed_args.on is not None:
            requested["host"] = parsed_args.on
        elif parsed_args.connect:
            requested["connector"] = _connector(parsed_args)
        if parsed_args.expires_in is not None:
            requested["expires_in"] = int(parsed_args.expires_in.total_seconds())
        if parsed_args.dry_run:
            return formatting.shown(storage.dry_run(requested))
        with self._waiting_for(storage, parsed_args, volume_id):
            created = storage.create(requested)
        if parsed_args.on is not None:
            return formatting.shown({name: created.get(key) for name, key in _BY_AGENT.items()})
        return formatting.shown(formatting.connection(created))

    def _waiting_for(
        self, storage: BlockStorage, parsed: argparse.Namespace, volume_id: str
    ) -> contextlib.AbstractContextManager[object]:
        """Show what the creation waits for."""
        if parsed.on is not None:
            describe = functools.partial(agent_wait.describe, storage, parsed.on)
            return self.waiting(describe, agent_wait.ADVICE)
        return self.waiting(f"Waiting for the storage of volume {volume_id}", _ADVICE)

    def _check(self, parsed: argparse.Namespace) -> None:
        """Check the combination of options."""
        given = [item.names[0] for item in _CONNECTOR if _value(parsed, item) is not None]
        if parsed.on is not None:
            others = given or (["--connect"] if parsed.connect else [])
            if others:
                self.refuse(f"argument --on: not allowed with {', '.join(others)}")
        elif given and parsed.connect is None:
            self.refuse(f"argument {given[0]}: only of use with --connect True")
        if parsed.expires_in is not None and (parsed.connect or parsed.on is not None):
            self.refuse("argument --expires-in: only a reservation expires")
        if parsed.instead_of is not None and parsed.dry_run:
            self.refuse("argument --instead-of: not allowed with --dry-run")


class UpdateAttachment(ShowOne):
    """Let a host reach a reserved volume, and show what it needs for that."""

    arguments = (_ATTACHMENT, *_CONNECTOR, options.MODE)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Connect the attachment."""
        connector = _connector(parsed_args)
        if parsed_args.mode is not None:
            connector["mode"] = parsed_args.mode
        storage = BlockStorage(self.connection)
        step = f"Waiting for the storage of attachment {parsed_args.attachment}"
        with self.waiting(step, _ADVICE):
            found = storage.update(parsed_args.attachment, connector)
        return formatting.shown(formatting.connection(found))


class FinishMove(ShowOne):
    """Finish the move to an attachment: the other host's access ends, and this one may write.

    To roll a move back instead, delete the attachment.
    """

    arguments = (_ATTACHMENT,)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the attachment after the move."""
        step = "Waiting for the end of the access of the other host"
        with self.waiting(step, agent_wait.ADVICE):
            found = BlockStorage(self.connection).finish_move(parsed_args.attachment)
        return formatting.shown(formatting.attachment(found))


class ShowAttachment(Describe):
    """Show an attachment with the fields of attachd and the secrets of its connection.

    For people it is a text with a section for the connection, and other formats have the fields.
    The formats url, qemu and libvirt show its connection for programs that connect by themselves,
    with SECRET in place of the secret, and INITIATOR in place of the iSCSI name of the host.
    """

    arguments = (_ATTACHMENT,)

    @property
    def formatter_namespace(self) -> str:
        """Return the group of its output formats: those of all commands, and of connections."""
        return connection_formats.GROUP

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Return the attachment."""
        found = BlockStorage(self.connection).show(parsed_args.attachment)
        if self.is_for_people(parsed_args):
            return formatting.shown(descriptions.attachment(found))
        return formatting.shown(formatting.attachment(found))


class ListAttachments(Lister):
    """List attachments, newest first.

    A table has the columns that fit: at least the attachment, the volume, by name if it has one,
    and the status. Age is that of the attach, of the reservation before it, and of the deletion
    after it. Formats for programs have all columns, and Age in seconds.
    """

    arguments = _LIST
    layout = Layout(
        ("ID", "Volume", "Host", "Device", "Status", "Condition", "Age", "Instance ID"),
        ("Instance ID", "Device", "Condition", "Age", "Host"),
    )
    long_layout = Layout(
        (
            *("ID", "Volume ID", "Volume", "Instance ID", "Host", "Device", "Status"),
            *("Condition", "Mode", "Age", "Created At", "Attached At", "Detached At"),
            "Project ID",
        ),
        (
            *("Project ID", "Created At", "Detached At", "Attached At", "Instance ID", "Mode"),
            *("Age", "Condition", "Device", "Host", "Volume"),
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Listed:
        """Return the attachments."""
        if parsed_args.limit is not None and parsed_args.limit < 1:
            self.refuse(f"argument --limit: {parsed_args.limit} is less than 1")
        if parsed_args.deleted_since is not None and not parsed_args.deleted:
            self.refuse("argument --deleted-since: only of use with --deleted")
        asked = {name.lower().replace("_", " ") for name in parsed_args.columns}
        is_short = bool(asked) and asked <= {name.lower() for name in _SHORT}
        storage = BlockStorage(self.connection)
        found = storage.attachments(_query(parsed_args), detail=not is_short)
        if is_short:
            return formatting.listed(found, _SHORT)
        more = _LONG_DELETED if parsed_args.deleted else _LONG
        columns = _COLUMNS | (more if parsed_args.long else {})
        # Without a name its ID stands for a volume, unless that has a column.
        rows = [_row(item, None if parsed_args.long else item["volume_id"]) for item in found]
        return formatting.listed(rows, columns)


class _Several(BatchCommand):
    """A command for several attachments."""

    arguments: ClassVar[Sequence[Option]] = (
        Option(
            ("attachments",),
            {"metavar": "ATTACHMENT", "nargs": "+", "help": "ID of an attachment"},
        ),
    )


class CompleteAttachments(_Several):
    """Note that hosts use what was attached to them."""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Complete each; continue after a failure."""
        return self.run_each(parsed_args.attachments, BlockStorage(self.connection).complete)


class DeleteAttachments(_Several):
    """Revoke the access of hosts and release their volumes.

    Remove the device on the host first: "attachd local-detach" does both. What this host has
    attached is not deleted without --force: programs that use the device would hang.
    """

    arguments = (
        *_Several.arguments,
        option(
            "--force",
            action="store_true",
            help="delete in any state, for administrators: only if the host is off, or has no "
            "device of the volume; also if this host has it",
        ),
        option(
            "--override-reason",
            metavar="TEXT",
            help="delete without the check with Nova, for administrators; the service records "
            "the text",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Delete each; continue after a failure."""
        query = {}
        if parsed_args.force:
            query["force"] = "true"
        if parsed_args.override_reason is not None:
            query["override_reason"] = parsed_args.override_reason
        storage = BlockStorage(self.connection)

        def delete(attachment_id: str) -> None:
            if not parsed_args.force:
                _check_not_here(attachment_id)
            step = agent_wait.Deletion(storage, attachment_id)
            with self.waiting(step, agent_wait.ADVICE):
                storage.delete(attachment_id, query)

        return self.run_each(parsed_args.attachments, delete)


def _row(attachment: dict[str, Any], nameless: str | None) -> dict[str, Any]:
    """Return the values of a line of a list.

    :param nameless: in place of a name that the volume does not have
    """
    moments = (attachment.get(name) for name in ("detached_at", "attached_at", "created_at"))
    return {
        **attachment,
        **{name: formatting.Time(attachment.get(name)) for name in _TIMES},
        "volume": attachment.get("volume_name") or nameless,
        "condition": (attachment.get("condition") or {}).get("state"),
        "age": formatting.Age(next(filter(None, moments), None)),
    }


def _check_not_here(attachment_id: str) -> None:
    """Check that the journal of this host does not hold an attachment.

    Users without access to the journal have no entries in it.

    :raises LocalConflict: it does
    """
    try:
        entries = Journal(Path(options.host_state_path())).list_entries()
    except PermissionError:
        entries = []
    for entry in entries:
        if entry.attachment_id == attachment_id and entry.owner is Owner.LOCAL:
            device = entry.device.path if entry.device else "no device yet"
            place = f", mounted at {entry.mountpoint}" if entry.mountpoint else ""
            raise exception.LocalConflict(
                reason=f"Volume {entry.volume_id} is attached to this host ({device}{place}), and "
                "programs that use it would hang. Detach it: attachd local-detach "
                f"--attachment-id {attachment_id} {entry.volume_id}. Or delete it with --force."
            )


def _value(parsed: argparse.Namespace, selected: Option) -> Any:
    return getattr(parsed, selected.names[0].removeprefix("--"))


def _connector(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the connector that the given options describe."""
    given = {item.names[0].removeprefix("--"): _value(parsed, item) for item in _CONNECTOR}
    known = _DEFAULTS | {name: value for name, value in given.items() if value is not None}
    known["os_type"] = known.pop("ostype")
    return known


def _query(parsed: argparse.Namespace) -> dict[str, str]:
    # Cinder takes attach_status for what it shows as status, and attachd takes both.
    asked = {
        "volume_id": parsed.volume_id,
        "instance_id": parsed.instance_id,
        "attach_status": parsed.status,
        "attached_host": parsed.host,
        "agent": parsed.agent,
        "created_at": _compared("lte", parsed.older_than),
        "updated_at": _compared("lte", parsed.unchanged_for),
        "deleted": "true" if parsed.deleted else None,
        "detached_at": _compared("gte", parsed.deleted_since),
        "limit": parsed.limit,
        "marker": parsed.marker,
        "all_tenants": 1 if parsed.all_projects else None,
    }
    return {name: str(value) for name, value in asked.items() if value is not None}


def _compared(verb: str, age: datetime.timedelta | None) -> str | None:
    """Return the filter that compares with a time that long ago; None: no filter."""
    if age is None:
        return None
    moment = datetime.datetime.now(datetime.UTC) - age
    return f"{verb}:{moment:%Y-%m-%dT%H:%M:%SZ}"


class ReserveVolume(ShowOne):
    """Reserve a volume, so that no other server or host gets it; no server has to exist.

    The attachment that it shows is connected by "attachment-update", or by another program, and
    ends with its deletion.
    """

    arguments = tuple(item for item in _CREATE if item.names[0] in _RESERVING)

    def take_action(self, parsed_args: argparse.Namespace) -> formatting.Shown:
        """Reserve the volume."""
        storage = BlockStorage(self.connection)
        requested: dict[str, Any] = {"volume_uuid": storage.volume_id(parsed_args.volume)}
        for name in ("instance_uuid", "mode"):
            if (value := getattr(parsed_args, name)) is not None:
                requested[name] = value
        if parsed_args.expires_in is not None:
            requested["expires_in"] = int(parsed_args.expires_in.total_seconds())
        if parsed_args.dry_run:
            return formatting.shown(storage.dry_run(requested))
        return formatting.shown(formatting.attachment(storage.create(requested)))
