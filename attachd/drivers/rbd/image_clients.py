# SPDX-License-Identifier: Apache-2.0
"""The clients that have images open, listed without opening an image; for the rbd driver."""

from collections.abc import Collection, Sequence
import errno
import re
import time
from typing import Any, Final, NamedTuple

from oslo_config import cfg

from attachd import exception
from attachd.ceph import object_names
from attachd.drivers import command
from attachd.drivers.rbd import objects, users
from attachd.drivers.rbd.cluster import Cluster
from attachd.drivers.rbd.watch_requests import WatchRequests

WATCH_TIMEOUT: Final = 45.0
"""Seconds after which the watches of a client have expired that has died.

By default they expire after 30 (osd_client_watch_timeout).
"""
_POLL_INTERVAL: Final = 0.2
_LOCK: Final = "rbd_lock"
_LOCK_TAG: Final = '"tag":"internal"'
_OWNER: Final = re.compile(
    r'\{"name":"client\.(\d+)","cookie":"(auto \d+)",[^{}]*"addr":"([0-9a-fA-F.:\[\]]+/\d+)"\}'
)
_WATCH: Final = re.compile(r"watcher=(\S+) client\.(\d+) ")
_ERROR: Final = re.compile(r"\((\d+)\) ")


class Watch(NamedTuple):
    """A client that has an image open, other than for reading alone, or has its lock.

    :ivar client_id: see Session
    :ivar address: with its nonce
    :ivar cookie: by which it has the lock; "": it has the image open
    """

    client_id: int
    address: str
    cookie: str = ""


class ImageClients:
    """Lists the clients of the images of one pool.

    :param requests: tells images that no client has open
    :param own: the users of managers, which have images open for short times
    """

    def __init__(
        self,
        cluster: Cluster,
        options: cfg.ConfigOpts.GroupAttr,
        requests: WatchRequests,
        pool: str,
        own: Collection[str],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._requests = requests
        self._pool = pool
        self._own = own

    def check(self) -> None:
        """Check that clients can be listed; raises BackendError, naming what is missing."""
        self._list_watchers(object_names.header_name("none"))

    def list_watches(self, image_id: str) -> Sequence[Watch]:
        """List the clients that have an image open; none if it does not exist."""
        header = object_names.header_name(image_id)
        if not self._requests.may_be_watched(self._pool, header):
            return ()
        return self._list_watchers(header)

    def list_foreign(self, image_id: str) -> Sequence[Watch]:
        """List the clients that have an image open, without managers and those that died."""
        watches = self.list_watches(image_id)
        return self._foreign(watches) if watches else ()

    def lock_owner(self, image_id: str) -> Watch | None:
        """Return the client that has the lock of an image for writing; None: none has.

        The lock is a part of the header: a host can name any client, or none.  A whole address
        or a daemon, which could be blocklisted as well, is no owner.

        Source: librbd/ManagedLock.cc; other locks, which users make, have other tags.
        """
        unreadable = (errno.ENOENT, errno.EIO)
        name = object_names.header_name(image_id)
        line = ("lock", "info", name, _LOCK, "--format", "json")
        text = self._run(*line, without=unreadable) or ""
        found = _OWNER.search(text) if _LOCK_TAG in text else None
        if not found or not users.is_client(found[3]):
            return None
        return Watch(int(found[1]), found[3], found[2])

    def check_unused(self, pool: Any, name: str) -> None:
        """Refuse an image that a client has open.

        A manager has images open for short times, or, if it was killed, until its watches expire.

        :raises BackendError: final=True
        """
        deadline = time.monotonic() + WATCH_TIMEOUT
        image_id = objects.read_id(pool, name)
        while image_id and (watches := self.list_watches(image_id)):
            others = self._foreign(watches)
            if others or time.monotonic() > deadline:
                address = (others or watches)[0].address
                raise exception.BackendError(
                    f"Image {name} is in use by the client {address}.", final=True
                )
            time.sleep(_POLL_INTERVAL)

    def _foreign(self, watches: Sequence[Watch]) -> Sequence[Watch]:
        manager = self._cluster.entity
        entities = {session.client_id: session.entity for session in self._cluster.sessions()}
        return [it for it in watches if entities.get(it.client_id, manager) not in self._own]

    def _list_watchers(self, header: str) -> Sequence[Watch]:
        text = self._run("listwatchers", header) or ""
        return [Watch(int(client), address) for address, client in _WATCH.findall(text)]

    def _run(self, *arguments: str, without: Collection[int] = (errno.ENOENT,)) -> str | None:
        """Run the command ``rados``: its Python module cannot list watchers.

        :param without: errors by which an object does not have what is asked for
        :returns: what it prints; None: the object does not have it, or does not exist
        :raises BackendError: also if the command is missing
        """
        options = self._options
        line = ["rados", "--conf", options.rbd_ceph_conf, "--name", self._cluster.entity]
        if options.rbd_ms_mode:
            for name in ("ms_client_mode", "ms_mon_client_mode"):
                line += [f"--{name}", options.rbd_ms_mode]
        result = command.run([*line, "--pool", self._pool, *arguments], options.rbd_timeout)
        if not result.exit_code:
            return result.stdout
        found = _ERROR.search(result.stderr)
        code = int(found[1]) if found else None
        if code in without:
            return None
        doing = f"'rados {arguments[0]}' failed"
        raise self._cluster.error(doing, code, result.stderr or f"exit {result.exit_code}")
