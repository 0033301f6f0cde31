# SPDX-License-Identifier: Apache-2.0
"""Show which agent a deletion waits for, and when that reported last."""

from collections.abc import Iterator
import contextlib
import datetime
import threading
from typing import Final

from openstack import exceptions

from attachd.cli.blockstorage import BlockStorage
from attachd.cli.progress import Progress

DELAY: Final = 3.0
"""Seconds before the first line: most agents release a device sooner."""
INTERVAL: Final = 2.0
"""Seconds between two lines."""


@contextlib.contextmanager
def shown(storage: BlockStorage, attachment_id: str, progress: Progress) -> Iterator[None]:
    """Show what the block waits for, from DELAY on; a failure to read that shows nothing."""
    is_over = threading.Event()
    thread = threading.Thread(
        target=_show, args=(storage, attachment_id, progress, is_over), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _show(
    storage: BlockStorage, attachment_id: str, progress: Progress, is_over: threading.Event
) -> None:
    host, pause = None, DELAY
    while not is_over.wait(pause):
        with contextlib.suppress(exceptions.SDKException):
            # Read once: the answer has secrets, and the agent of an attachment stays the same.
            host = host or storage.show(attachment_id).get("agent")
            if host is None:
                return
            progress(describe(storage, host))
        pause = INTERVAL


def describe(storage: BlockStorage, host: str) -> str:
    """Return what a deletion waits for: the agent of a host, and how old its last report is."""
    reported = ""
    with contextlib.suppress(exceptions.SDKException):  # Its user may not read agents.
        last = storage.agent(host)["last_seen"]
        if last is None:
            reported = ", which has never reported"
        else:
            reported = f", whose last report is {_seconds_since(last)} s old"
    return f"Waiting for the agent of {host}{reported}"


def _seconds_since(moment: str) -> int:
    seen = datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC)
    return max(int((datetime.datetime.now(datetime.UTC) - seen).total_seconds()), 0)
