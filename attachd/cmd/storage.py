# SPDX-License-Identifier: Apache-2.0
"""attachd-manage storage: the identities of the storage of backends."""

from typing import Any

from attachd import exception
from attachd.cmd import output
from attachd.conf import CONF


def add_command(subjects: Any) -> None:
    """Add the actions to the command line."""
    actions = output.add_subject(subjects, "storage", "which storage the backends serve")
    accept = output.add_action(
        actions,
        "accept",
        _accept,
        "have a backend serve the storage that it has now, instead of the one that its volumes "
        "were on",
    )
    accept.add_argument("backend", metavar="NAME", help="one of enabled_backends")


def _accept() -> None:
    # They need the drivers, whose import takes longer than most commands.
    from attachd.db.cluster import storages  # noqa: PLC0415
    from attachd.manager import backends, storage_identity  # noqa: PLC0415

    name = CONF.subject.backend
    backend = next((item for item in backends.load() if item.name == name), None)
    if backend is None:
        raise exception.ConfigurationError(reason=f"{name} is not in enabled_backends.")
    backend.driver.setup()
    known, present = storages.list_known(backend.host), dict(backend.driver.storage_ids)
    storages.replace(backend.host, present)
    changes = storage_identity.find_changes(known, present)
    for change in changes:
        print(f"Backend {backend.host}: {change}")
    if not changes:
        print(f"Backend {backend.host}: it serves the same storage as before.")
