# SPDX-License-Identifier: Apache-2.0
"""attachd-manage key: the encryption keys of secrets; read by manage.py.

A key is printed only if the command asks for it.
"""

import contextlib
import os
import sys
from typing import Any, Final

from attachd import exception
from attachd.cmd import output
from attachd.conf import CONF
from attachd.db import migration
from attachd.db.secrets import encryption, key_file, rotation

LEFT: Final = 1
"""Exit code of a rotation that left values encrypted with another key than the first."""


def add_command(subjects: Any) -> None:
    """Add the command to the parser of attachd-manage."""
    actions = output.add_subject(subjects, "key", "the keys that encrypt secrets in the database")
    create = output.add_action(
        actions, "create", _create, "make a key file, or add a key at the end of the one there is"
    )
    create.add_argument(
        "--print",
        dest="only_print",
        action="store_true",
        help="print a new key, and leave the file as it is",
    )
    listed = output.add_action(
        actions, "list", _list, "list the keys, and the number of values encrypted with each"
    )
    promote = output.add_action(
        actions, "promote", _promote, "make a key the first, which encrypts from then on"
    )
    rotate = output.add_action(
        actions, "rotate", _rotate, "encrypt all secrets of the database with the first key"
    )
    retire = output.add_action(
        actions, "retire", _retire, "remove a key that no value needs from the file"
    )
    for action in (promote, retire):
        action.add_argument("key_id", metavar="KEY", help="the id of the key, as printed by list")
    output.add_format(listed)
    output.add_format_of_one(rotate)


def _path() -> str:
    path: str | None = CONF.secrets.key_file
    if not path:
        raise exception.ConfigurationError(
            reason=f"{key_file.OPTION} is not set: name the file there, then repeat the command."
        )
    return path


def _create() -> None:
    if CONF.subject.only_print:
        print(key_file.generate())
        return
    path = _path()
    if os.path.lexists(path):
        name = key_file.add(path)
        if key_file.read(path).first == name:
            print(f"{path} has key {name} now, which encrypts.")
            return
        print(
            f"{path} has key {name} now, at its end: it decrypts only. Add it on every "
            f"other host, then: attachd-manage key promote {name}"
        )
        return
    plain = _count_plain_text()
    name = key_file.create(path)
    print(f"{path} is new, with key {name}. It is for its owner alone: give it to the services.")
    if plain == 0:
        key_file.refuse_plain_text(path)
        return
    stored = (
        "The database could not be read" if plain is None else f"{plain} values are plain text"
    )
    print(f"{stored}: plain text is accepted until: attachd-manage key rotate")


def _count_plain_text() -> int | None:
    """Count the secrets that are stored as plain text; None: the database does not answer."""
    with contextlib.suppress(exception.Unavailable):
        return rotation.count_by_key().get(rotation.NO_KEY, 0)
    with contextlib.suppress(exception.Unavailable):
        return 0 if migration.version() is None else None
    return None


def _promote() -> None:
    key_file.promote(_path(), CONF.subject.key_id)
    print(
        f"Key {CONF.subject.key_id} encrypts on this host. When it does on every host: "
        "attachd-manage key rotate"
    )


def _list() -> None:
    keys, counts = encryption.keys(), rotation.count_by_key()
    known = [] if keys is None else list(keys.by_id)
    others = sorted(set(counts) - set(known))
    uses = [
        *((name, "decrypts" if number else "encrypts") for number, name in enumerate(known)),
        *((name, "missing" if name else "not encrypted") for name in others),
    ]
    lines = [
        {"key": name or None, "use": use, "values": counts.get(name, 0)} for name, use in uses
    ]
    output.print_rows(lines, ("key", "use", "values"), CONF.subject.format)


def _rotate() -> int:
    outcome = rotation.rotate()
    if CONF.subject.format == "json":
        output.print_json(
            {
                "encrypted": outcome.encrypted,
                "changed": outcome.changed,
                "unreadable": [
                    {"attachment_id": item, "reason": reason}
                    for item, reason in outcome.unreadable.items()
                ],
                "unreadable_volumes": [
                    {"volume_id": item, "reason": reason}
                    for item, reason in outcome.unreadable_volumes.items()
                ],
                "unreadable_snapshots": [
                    {"snapshot_id": item, "reason": reason}
                    for item, reason in outcome.unreadable_snapshots.items()
                ],
            }
        )
    else:
        print(f"{outcome.encrypted} values were encrypted again.")
        for item, reason in outcome.unreadable.items():
            print(f"Attachment {item} was left as it is: {reason}")
        for item, reason in outcome.unreadable_volumes.items():
            print(f"Volume {item} was left as it is: {reason}")
        for item, reason in outcome.unreadable_snapshots.items():
            print(f"Snapshot {item} was left as it is: {reason}")
    if outcome.changed and CONF.subject.format != "json":
        print(f"{outcome.changed} rows changed at the same time; repeat the command.")
    if not outcome.is_complete:
        return LEFT
    _refuse_plain_text()
    return 0


def _refuse_plain_text() -> None:
    """Record in the key file, which the database cannot change, that all values are encrypted."""
    path = _path()
    try:
        is_new = key_file.refuse_plain_text(path)
    except exception.ConfigurationError as error:
        print(
            f"Plain text is still accepted: add the line '{key_file.ENCRYPTED_ONLY}' to the file. "
            f"{error}",
            file=sys.stderr,
        )
        return
    if is_new and CONF.subject.format != "json":
        print(
            f"{path} says now that values that are not encrypted are refused. On every other host "
            "repeat the command, or copy the file."
        )


def _retire() -> None:
    path, name = _path(), CONF.subject.key_id
    if left := rotation.count_by_key().get(name):
        raise exception.Conflict(
            reason=f"{left} values are encrypted with key {name}. Encrypt them again before: "
            "attachd-manage key rotate"
        )
    key_file.remove(path, name)
    print(f"Key {name} is not in {path} any more.")
