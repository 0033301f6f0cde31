# SPDX-License-Identifier: Apache-2.0
"""Checks of what this host needs to attach volumes.

They change nothing, except that the user-space connector creates a missing iSCSI name.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import os
from typing import Final

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.host import CONNECTORS, Host, make_connector
from attachd.agent.mount import mounts
from attachd.agent.restore import Verdict, check_host
from attachd.client.service import FAILURES, Service

_PROTOCOLS: Final = ("iscsi", "rbd", "nvmeof", "nfs", "fibre_channel")
_MKFS: Final = ("mkfs.ext4", "setpriv", "wipefs")


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check.

    :ivar result: "ok", "missing", or "not used", which is no obstacle
    :ivar remedy: what is missing and what to do; "": nothing
    """

    name: str
    result: str
    remedy: str = ""


def diagnose(host: Host, service: Service) -> list[Check]:
    """Check rights, tools, the journal, the service, and each kind of volume."""
    selected = host.connector.TYPE
    return [
        _check("rights", _rights),
        _check("journal", lambda: _journal(host)),
        _check("mount", lambda: mounts.missing_tools(mounts.TOOLS)),
        _check("mkfs (ext4)", lambda: mounts.missing_tools(_MKFS), optional=True),
        _check(f"connector ({selected})", lambda: _connector(host)),
        *_check_protocols(host),
        _check("service", lambda: _service(service)),
    ]


def can_attach(checks: Sequence[Check]) -> bool:
    """Return whether nothing is missing, except for what only some volumes need."""
    return all(check.result != "missing" for check in checks)


def _check(
    name: str, find_missing: Callable[[], Sequence[str]], *, optional: bool = False
) -> Check:
    try:
        missing = find_missing()
    except (exception.HostError, OSError, *FAILURES) as error:
        missing = [f"{error}"]
    if not missing:
        return Check(name, "ok")
    return Check(name, "not used" if optional else "missing", ", ".join(missing))


def _check_protocols(host: Host) -> Iterator[Check]:
    """Check each kind of volume by each connector; one that works is enough."""
    checks = []
    for connector_type in CONNECTORS:
        connector = make_connector(connector_type, host.journal.state_path)
        for protocol in _PROTOCOLS:
            name = f"{protocol} volumes ({connector_type})"
            find_missing = functools.partial(connector.missing_requirements, protocol)
            checks.append(_check(name, find_missing, optional=True))
    yield from checks
    if all(check.result != "ok" for check in checks):
        what = "one of these kinds of volumes: only local ones can be attached"
        yield Check("volumes", "missing", what)


def _rights() -> list[str]:
    return [] if os.geteuid() == 0 else ["the rights of root (run it with sudo)"]


def _journal(host: Host) -> list[str]:
    """Check that the journal is accessible, and that its devices are there."""
    path = host.journal.state_path
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not os.access(nearest, os.W_OK):
        return [f"the right to write to {nearest}"]
    return [
        f"the device of volume {finding.entry.volume_id} (attachd local-restore)"
        for finding in check_host(host)
        if finding.entry and finding.verdict is Verdict.MISSING
    ]


def _connector(host: Host) -> list[str]:
    missing = list(host.connector.missing_requirements())
    if not missing:
        host.get_connector_properties(Options())
    return missing


def _service(service: Service) -> list[str]:
    service.check()
    return []
