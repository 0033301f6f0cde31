# SPDX-License-Identifier: Apache-2.0
"""The program that asks OSDs whether clients have images open; see watch_requests.py.

It sends a notification to the header of an image.  An empty one says that the header has changed:
clients read it again, and answer.  The OSD names those that have answered, and waits for those
that have not.

A client can answer with hundreds of megabytes, which librados keeps.  So this is a process of its
own, whose memory is limited, and which ends when a client answers with more.

Its standard input has a line of JSON, :class:`Settings`, and then a line for each request: its
number, the pool and the object.  It prints a line for each answer: the number, and whether a
client may watch the object.
"""

import errno
import json
import os
import resource
import sys
from typing import Any, Final, TypedDict

from attachd.ceph import bindings

MAX_DATA_BYTES: Final = 2**29
"""Memory of this process that is no file; it needs 100 MiB."""
NOTIFY_TIMEOUT_MS: Final = 1000


class Settings(TypedDict):
    """How to connect.

    :ivar entity: the cephx user
    :ivar conf: the path of Ceph's configuration file
    :ivar settings: beside it
    """

    entity: str
    conf: str
    settings: dict[str, str]


def main() -> None:
    """Answer until the standard input ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    settings: Settings = json.loads(sys.stdin.readline())
    connection = bindings.load().rados.Rados(
        name=settings["entity"], conffile=settings["conf"], conf=settings["settings"]
    )
    connection.connect()
    pools: dict[str, Any] = {}
    for line in sys.stdin:
        number, pool, name = json.loads(line)
        if pool not in pools:
            pools[pool] = connection.open_ioctx(pool)
        _ask(pools[pool], name, number)
    # Without the shutdown of the connection, which waits for requests.
    os._exit(0)


def _ask(pool: Any, name: str, number: int) -> None:
    def answered(_request: Any, code: int, acknowledged: Any, missing: Any) -> None:
        if code == -errno.ESHUTDOWN:  # Blocklisted: another process has another connection.
            os._exit(1)
        is_watched = bool(acknowledged or missing) or code not in {0, -errno.ENOENT}
        # In a thread of librados, but in one for all requests.
        os.write(sys.stdout.fileno(), f"{json.dumps([number, is_watched])}\n".encode())

    pool.aio_notify(name, answered, "", NOTIFY_TIMEOUT_MS)


if __name__ == "__main__":
    main()
