# SPDX-License-Identifier: Apache-2.0
"""attachd-manage agent: hosts that may have an agent, and their keys; read by manage.py."""

import argparse
import secrets
from typing import Any, Final

from attachd import exception, host_identity
from attachd.cmd import output
from attachd.conf import CONF
from attachd.db import host_identities
from attachd.db.agents import accept_machine, agent_store
from attachd.db.row_types import AgentRow
from attachd.host_identity import HostIdentity
from attachd.manager.agents import report_schema

LENGTH: Final = 32
"""Bytes of a random key."""

_LONGEST: Final = 255
_COLUMNS: Final = ("host", "state", "last_seen", "attachments", "error")


def add_command(subjects: Any) -> None:
    """Add the command to the parser of attachd-manage."""
    actions = output.add_subject(subjects, "agent", "the hosts that attach volumes by themselves")
    add = output.add_action(
        actions, "add", _make_known, "make a host known, and print the key of its agent"
    )
    listed = output.add_action(
        actions, "list", _list, "list the hosts that are known, and how their agents are"
    )
    output.add_format(listed)
    remove = output.add_action(actions, "remove", _remove, "forget a host and its key")
    accept = output.add_action(
        actions, "accept", _accept, "choose the machine whose reports are those of a host"
    )
    for parser in (add, remove, accept):
        # "host" is an option of the configuration
        parser.add_argument(
            "host_name", metavar="HOST", type=_name, help="[agent] host, as the agent has it"
        )
    add.add_argument(
        "--initiator",
        metavar="NAME",
        type=_initiator,
        action="append",
        default=[],
        help="an iSCSI name, NQN or WWPN of the host, which may report no others; repeatable",
    )
    accept.add_argument(
        "--boot",
        metavar="BOOT_ID",
        help="that of the machine, see attachd-manage agent list; default: the next one that "
        "reports with the key, to which the host moves",
    )
    accept.add_argument(
        "--devices-gone",
        action="store_true",
        help="although the host has attachments: no other machine uses their devices any more, "
        "such as because it is off",
    )
    remove.add_argument(
        "--force", action="store_true", help="although there are attachments at this host"
    )


def _name(text: str) -> str:
    """Check the name of a host."""
    if not text.isprintable() or not 0 < len(text) <= _LONGEST:
        raise argparse.ArgumentTypeError(f"1 to {_LONGEST} printable characters are needed")
    return text


def _initiator(text: str) -> str:
    """Return the identifier of an initiator."""
    item = host_identity.parse_initiator(text)
    if item is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no iSCSI name, NVMe qualified name or WWPN")
    return item


def _make_known() -> None:
    host, key = CONF.subject.host_name, secrets.token_urlsafe(LENGTH)
    report_schema.check_host(host)
    if not agent_store.create(host, key):
        raise exception.Conflict(
            reason=f"Host {host} is known already. For a new key remove it first: "
            f"attachd-manage agent remove {host}"
        )
    if CONF.subject.initiator:
        _assign(HostIdentity(host, frozenset(CONF.subject.initiator)))
    print(key)


def _assign(identity: HostIdentity) -> None:
    """Assign initiators to a new host, which is removed again if they are a fenced host's."""
    try:
        host_identities.claim(identity, host_identities.Source.ADMIN)
    except exception.HostFenced:
        agent_store.force_delete(identity.name)
        raise


def _list() -> None:
    rows = [_shown(row) for row in agent_store.list_all()]
    output.print_rows(rows, _COLUMNS, CONF.subject.format)


def _shown(row: AgentRow) -> dict[str, Any]:
    return {
        "host": row["host"],
        "state": agent_store.state(row),
        "last_seen": row["seen_at"],
        "attachments": len(agent_store.list_attachment_ids(row["host"])),
        "error": row["error"],
        "boot_id": row["boot_id"],
        "other_boot_id": row["conflict"] and row["conflict"]["boot_id"],
        "connector_type": row["connector_type"],
        "version": row["version"],
        "devices": len(row["devices"] or ()),
    }


def _accept() -> None:
    host = CONF.subject.host_name
    accepted = accept_machine.accept(host, CONF.subject.boot, CONF.subject.devices_gone)
    print(f"Host {host}: {accepted or 'the next machine that reports with its key'} is accepted.")


def _remove() -> None:
    remove = agent_store.force_delete if CONF.subject.force else agent_store.delete
    remove(CONF.subject.host_name)
    print(f"Host {CONF.subject.host_name} is removed, with its key.")
