# SPDX-License-Identifier: Apache-2.0
"""Compare attachments with the volumes that Compute says its servers have.

A list of all servers of all projects, without any lock, only finds suspects.  Each suspect server
is then read twice, with its attachments and their rows, and a difference counts only if it is
there both times, for an attachment that has not changed meanwhile.  While Compute builds, migrates
or resizes a server, its attachments are not compared.

Two repairs are safe: to delete the attachments of servers that Compute does not have any more, and
to have Compute detach a volume whose attachment was deleted without it, as events say.  A repair
never deletes an attachment that Compute lists.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import itertools
import time
from typing import Final, NamedTuple

from attachd import exception, host_identity
from attachd.compute import ComputeReader, Failure, Server, VolumeAttachment
from attachd.conf import CONF
from attachd.db import audit, models
from attachd.db.attachments import deleted_attachments
from attachd.db.audit import ServerAttachmentRow
from attachd.db.row_types import AttachmentVersion
from attachd.manager import detach
from attachd.manager.audit import rules
from attachd.manager.audit.rules import MEANINGS, REPAIRED, Difference, Finding, Kind
from attachd.manager.audit.runner import AuditResult
from attachd.manager.backends import Backend
from attachd.states import AttachmentState

NAME: Final = "compute"
"""The name of this part of an audit, where others have the name of a backend."""

_INTERVAL = 5.0
"""Seconds between two reads of a server: Compute may be about to delete or store an attachment."""

_BATCH = 200
"""How many servers are read between two pauses."""

_IN_PROGRESS: Final = frozenset(
    {AttachmentState.CONNECTING, AttachmentState.WITHDRAWING, AttachmentState.DISCONNECTING}
)


class _Version(NamedTuple):
    """An attachment as it was read; any change of it makes another one."""

    attachment_id: str
    state: str
    generation: int


class _Suspicion(NamedTuple):
    """A possible difference; it is confirmed by an equal one.

    :ivar version: None: attachd has no such attachment
    :ivar listed_id: that of an attachment that only Compute has
    """

    server_id: str
    volume_id: str
    finding: Finding
    version: _Version | None
    listed_id: str | None = None


class _Comparison:
    """One comparison; a failure that the next requests would have as well ends it."""

    def __init__(self, reader: ComputeReader) -> None:
        self._reader = reader
        self.servers: dict[str, Server] = {}
        self.rows: dict[str, list[ServerAttachmentRow]] = {}
        self.result = AuditResult(NAME)
        self._is_over = False

    def list_suspects(self, *, is_thorough: bool) -> list[str]:
        """Return the servers to read; with ``is_thorough`` all that have a volume."""
        is_complete = False
        try:
            for server in self._reader.list_servers():
                self.servers[server.id] = server
            is_complete = True
        except Failure as failure:
            self._fail("The list of servers is not complete", failure)
        for row in audit.list_server_attachments():
            self.rows.setdefault(row["instance_uuid"] or "", []).append(row)
        if any(
            server.is_readable and server.host_names is None for server in self.servers.values()
        ):
            self.result.not_compared.append(
                "The hosts of servers: Compute does not show them to the user of [nova]."
            )
        listed = [
            server.id
            for server in self.servers.values()
            if _is_suspect(server, self.rows.get(server.id, ()))
            or (is_thorough and server.volume_ids)
        ]
        unlisted = [server_id for server_id in self.rows if server_id not in self.servers]
        return sorted(listed + unlisted if is_complete else listed)

    def confirm(self, server_ids: Sequence[str]) -> Iterator[_Suspicion]:
        """Read each server twice; yield what differs both times."""
        for batch in _batches(server_ids):
            if first := self._read_all(batch):
                time.sleep(_INTERVAL)
                again = dict.fromkeys(suspicion.server_id for suspicion in first)
                confirmed = first & self._read_all(again)
                yield from sorted(confirmed, key=lambda suspicion: suspicion[:3])

    def is_ours(self) -> bool:
        """Return whether some server has a volume according to both databases."""
        return any(
            row["volume_id"] in self.servers[server_id].volume_ids
            for server_id, rows in self.rows.items()
            if server_id in self.servers
            for row in rows
        )

    def _read_all(self, server_ids: Iterable[str]) -> set[_Suspicion]:
        suspicions: set[_Suspicion] = set()
        for server_id in server_ids:
            if self._is_over:
                break
            try:
                suspicions.update(self._read(server_id))
            except Failure as failure:
                others = " and those after it" if failure.is_final else ""
                self._fail(f"Server {server_id}{others}", failure)
        return suspicions

    def _fail(self, subject: str, failure: Failure) -> None:
        self._is_over = failure.is_final
        self.result.not_compared.append(f"{subject}: {failure}")

    def _read(self, server_id: str) -> Iterator[_Suspicion]:
        rows = audit.list_server_attachments(server_id)
        server = self._reader.find_server(server_id)
        if server is None:
            if server_id in self.servers:
                # It was deleted since, or the user may list servers that it may not see.
                text = "Compute has listed it, and now says that there is no such server."
                raise Failure(text, is_final=False)
            for row in filter(_is_settled, rows):
                yield _suspicion(Kind.SERVER_GONE, server_id, row, _describe_gone(row))
            return
        if not server.is_readable:
            raise Failure("its cell does not answer Compute.", is_final=False)
        listed = None if server.is_busy else self._reader.list_attachments(server_id)
        if listed is not None:
            without_id = server.volume_ids - {item.volume_id for item in listed}
            listed += [VolumeAttachment(None, volume_id) for volume_id in without_id]
            for row in filter(_is_settled, rows):
                yield from _compare_row(row, server, listed)
            yield from _find_unknown(server_id, rows, listed)


def compare(
    reader: ComputeReader, backends: Iterable[Backend] = (), *, is_thorough: bool = False
) -> AuditResult:
    """Compare all attachments of servers with Compute.

    :param backends: those on which attachments of servers that are gone are deleted
    :param is_thorough: also compare the attachments of servers whose volumes do not differ
    :raises Unavailable: the database does not answer
    """
    comparison = _Comparison(reader)
    suspects = comparison.list_suspects(is_thorough=is_thorough)
    by_host = {backend.host: backend for backend in backends}
    for suspicion in comparison.confirm(suspects):
        kind, text = suspicion.finding
        outcome = ""
        if by_host and suspicion.version and MEANINGS[kind].safe:
            outcome = _repair(suspicion.version, by_host, is_ours=comparison.is_ours())
        elif by_host and kind is Kind.UNKNOWN_ATTACHMENT and suspicion.listed_id:
            outcome = _detach_in_compute(reader, suspicion, suspicion.listed_id)
        comparison.result.differences.append(
            Difference(kind, NAME, suspicion.volume_id, text, MEANINGS[kind].action, outcome)
        )
    if by_host:
        comparison.result.differences = rules.explain_kept(comparison.result.differences)
    return comparison.result


def _is_suspect(server: Server, rows: Collection[ServerAttachmentRow]) -> bool:
    """Return whether a server seems to have other volumes than its rows, or another host."""
    if server.is_busy or not server.is_readable:
        return bool(rows) and not server.is_busy
    volume_ids = [row["volume_id"] for row in rows]
    return sorted(volume_ids) != sorted(server.volume_ids) or any(
        _is_elsewhere(row, server) for row in rows
    )


def _is_elsewhere(row: ServerAttachmentRow, server: Server) -> bool:
    if not (row["host"] and server.host and server.host_names):
        return False
    return not any(host_identity.is_same_name(row["host"], name) for name in server.host_names)


def _is_settled(row: ServerAttachmentRow) -> bool:
    """Return whether a request for an attachment can have nothing more to store."""
    is_old = audit.seconds_unchanged(row) > CONF.rpc.attach_timeout
    return is_old and row["state"] not in _IN_PROGRESS


def _compare_row(
    row: ServerAttachmentRow, server: Server, listed: Sequence[VolumeAttachment]
) -> Iterator[_Suspicion]:
    by_volume = {item.volume_id: item for item in listed}
    by_id = {item.attachment_id: item for item in listed}
    current = by_volume.get(row["volume_id"])
    named = by_id.get(row["id"])
    subject = f"{_subject(row)} of server {server.id}"
    if named is not None and named.volume_id != row["volume_id"]:
        text = f"{subject}: Compute lists it with volume {named.volume_id}."
        yield _suspicion(Kind.WRONG_SERVER, server.id, row, text)
    elif current is None:
        text = f"{subject}: Compute lists no such volume of the server."
        yield _suspicion(Kind.UNLISTED_ATTACHMENT, server.id, row, text)
    elif current.attachment_id not in {None, row["id"]}:
        text = f"{subject}: Compute lists attachment {current.attachment_id} instead."
        yield _suspicion(Kind.UNLISTED_ATTACHMENT, server.id, row, text)
    elif _is_elsewhere(row, server):
        text = f"{subject}: Compute has the server on host {server.host}."
        yield _suspicion(Kind.WRONG_HOST, server.id, row, text)


def _find_unknown(
    server_id: str, rows: Sequence[ServerAttachmentRow], listed: Iterable[VolumeAttachment]
) -> Iterator[_Suspicion]:
    """Find what Compute lists without an attachment of this server."""
    ids, volume_ids = ({row[name] for row in rows} for name in ("id", "volume_id"))
    for attachment_id, volume_id in listed:
        if attachment_id in ids or (attachment_id is None and volume_id in volume_ids):
            continue
        row = audit.find_server_attachment(attachment_id) if attachment_id else None
        if row is None:
            name = f"attachment {attachment_id}" if attachment_id else "an attachment without id"
            missing = "volume" if audit.find_volume(volume_id) is None else "attachment"
            text = f"Compute lists {name} of server {server_id}: there is no such {missing}."
            finding = Kind.UNKNOWN_ATTACHMENT, text
            yield _Suspicion(server_id, volume_id, finding, None, attachment_id)
        elif row["instance_uuid"] != server_id:
            owner = f"server {row['instance_uuid']}" if row["instance_uuid"] else "no server"
            text = f"{_subject(row)} of {owner}: Compute lists it of server {server_id}."
            yield _suspicion(Kind.WRONG_SERVER, server_id, row, text)


def _describe_gone(row: ServerAttachmentRow) -> str:
    return f"{_subject(row)}: Compute has no server {row['instance_uuid']}."


def _subject(row: ServerAttachmentRow) -> str:
    """Return a name that tells people what there is to look at."""
    status = AttachmentState(row["state"]).wire
    return f"Attachment {row['id']} ({status}, host {row['host']}, project {row['project_id']})"


def _suspicion(kind: Kind, server_id: str, row: ServerAttachmentRow, text: str) -> _Suspicion:
    version = _Version(row["id"], row["state"], row["generation"])
    return _Suspicion(server_id, row["volume_id"], (kind, text), version)


def _repair(version: _Version, backends: Mapping[str, Backend], *, is_ours: bool) -> str:
    """Delete the attachment of a server that is gone; return REPAIRED, or why not."""
    row = audit.find_server_attachment(version.attachment_id)
    if row is None:
        return REPAIRED
    backend = backends.get(models.backend_of(row["volume_host"]) or "")
    if backend is None:
        return f"Kept: repeat this with the managers of {row['volume_host']}."
    if reason := _reason_to_keep(row, is_ours=is_ours):
        return f"Kept: {reason}, delete the attachment through the Block Storage API."
    seen: AttachmentVersion = {
        "id": row["id"],
        "volume_id": row["volume_id"],
        "state": version.state,
        "generation": version.generation,
    }
    try:
        detach.finish_detach(backend, seen)
    except exception.AttachmentNotFound:
        return REPAIRED
    except exception.AttachdError as error:
        return str(error)
    return REPAIRED


def _detach_in_compute(reader: ComputeReader, suspicion: _Suspicion, attachment_id: str) -> str:
    """Have Compute detach a volume whose attachment was deleted; return REPAIRED, or why not.

    :returns: "": nothing says that this deployment had this attachment of this server
    """
    deleted = deleted_attachments.find(attachment_id)
    if deleted is None:
        return ""
    if (deleted.volume_id, deleted.instance_uuid) != (suspicion.volume_id, suspicion.server_id):
        return ""
    try:
        reader.detach(suspicion.server_id, suspicion.volume_id)
    except Failure as failure:
        return f"Kept: {failure}"
    return REPAIRED


def _reason_to_keep(row: ServerAttachmentRow, *, is_ours: bool) -> str:
    """Return why the answer of Compute does not suffice to delete an attachment; "": it does."""
    if not is_ours:
        return "Compute has no volume of this database. If it is the right Compute"
    if CONF.nova.unknown_to_compute != "any" or not row["by_service"]:
        return "it may have been made by another client than Compute. If it was not"
    return ""


def _batches(server_ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    iterator = iter(server_ids)
    while batch := tuple(itertools.islice(iterator, _BATCH)):
        yield batch
