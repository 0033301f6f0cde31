# SPDX-License-Identifier: Apache-2.0
"""The connection to a Ceph cluster: commands of its monitors, and errors; for the rbd driver."""

from collections.abc import Collection, Iterator, Sequence
from concurrent import futures
import contextlib
import contextvars
import dataclasses
import errno
import json
import re
import threading
from typing import Any, Final, NamedTuple

from oslo_config import cfg
from oslo_log import log

from attachd import exception
from attachd.ceph import bindings
from attachd.drivers import base

LOG = log.getLogger(__name__)

BLOCKLIST_SECONDS: Final = 365 * 24 * 3600
"""How long a client stays blocklisted: longer than it keeps its connections.

An OSD checks tickets and capabilities when a client connects.  A client that is connected when its
entry expires has access again, also long after its tickets have expired and its user was deleted.
"""

_PARALLEL_CHANGES: Final = 32
_NO_ANSWER: Final = frozenset({errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN, errno.EAGAIN})
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[0-9.]+):\d+/(\d+)")
_RIGHTS: Final = "the administration guide lists the capabilities that it needs"


class Session(NamedTuple):
    """A client that is connected to a monitor, as each client of a cluster is.

    :ivar client_id: by which OSDs know the client, too
    :ivar addresses: each with its nonce, as in a blocklist
    """

    client_id: int
    entity: str
    addresses: tuple[str, ...]


@dataclasses.dataclass
class _Connection:
    """A connection, which ends with its last user after it was closed.

    The modules keep the threads of a connection, and the connection, until its shutdown().

    :ivar users: the blocks that use it
    """

    rados: Any
    users: int = 0
    is_closed: bool = False


@contextlib.contextmanager
def _shutdown_on_error(connection: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.shutdown()
        raise


class Cluster:
    """One connection, used by all threads of the process and made when it is needed.

    Each call ends: librados gets a timeout for all that it waits for.

    :param options: the group of the backend
    :ivar entity: the name of the manager's user
    """

    def __init__(self, options: cfg.ConfigOpts.GroupAttr) -> None:
        self._options = options
        self.entity = f"client.{options.rbd_user}"
        self._mutex = threading.Lock()
        self._connection: _Connection | None = None

    def check(self) -> dict[str, str]:
        """Connect, and check the pools and the rights.

        :returns: the fsid of the cluster with the number of the pool, by pools
        :raises BackendError: naming the option to set
        """
        found = {}
        for pool in self._options.rbd_pools:
            doing = f"The identity of pool {pool} could not be read"
            with self._connected() as connection, self.pool(pool) as ioctx, self.errors(doing):
                found[pool] = f"{connection.get_fsid()}/{ioctx.get_pool_id()}"
        self.read("auth ls")
        self.sessions()
        return found

    def close(self) -> None:
        """Disconnect, after the calls in progress; the next call connects again."""
        with self._mutex:
            closed, self._connection = self._connection, None
            if closed:
                closed.is_closed = True
            is_unused = closed and not closed.users
        if closed and is_unused:
            closed.rados.shutdown()

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Raise what rados and rbd raise as BackendError, or as BackendUnreachable.

        :param doing: what failed, for the message: "Volume X could not be created"
        """
        lib = bindings.load()
        try:
            yield
        except (lib.rados.Error, lib.rbd.Error) as error:
            code = getattr(error, "errno", None)
            causes = describe_health(self) if code == errno.ETIMEDOUT else ""
            raise self.error(doing, code, f"{error}{causes}") from error

    @contextlib.contextmanager
    def pool(self, pool: str) -> Iterator[Any]:
        """Open a pool for the block; yields rados.Ioctx."""
        rados = bindings.load().rados
        with self._connected() as connection:
            with self.errors(f"Pool {pool} could not be opened"):
                try:
                    ioctx = connection.open_ioctx(pool)
                except rados.ObjectNotFound as error:
                    raise exception.BackendError(
                        f"rbd_pools: the cluster has no pool {pool!r}. Create it, or set another.",
                        final=True,
                    ) from error
            # What needs space fails at once in a full pool, and what frees space does not wait.
            ioctx.set_osdmap_full_try()
            try:
                yield ioctx
            finally:
                ioctx.close()

    def read(self, prefix: str, *, monitor: str | None = None, **arguments: str) -> Any:
        """Run a command that changes nothing, and return its answer.

        :param monitor: its name; None: any
        """
        code, answer, reason = self._command({"prefix": prefix, **arguments}, monitor)
        if code:
            raise self.error(f"'ceph {prefix}' failed", -code, reason)
        return answer

    def sessions(self) -> Sequence[Session]:
        """List the clients of the cluster: each has a session with one of its monitors."""
        monitors = self.read("mon dump")
        names = [
            monitor["name"]
            for monitor in monitors["mons"]
            if monitor["rank"] in monitors.get("quorum", ())
        ]
        return [
            Session(
                session["global_id"],
                session["entity_name"],
                tuple(
                    f"{address['addr']}/{address['nonce']}"
                    for address in session["addrs"]["addrvec"]
                ),
            )
            for name in names
            for session in self.read("sessions", monitor=name)
            if session["con_type"] == "client"
        ]

    def monitors(self) -> Sequence[tuple[str, str]]:
        """List host and port of the monitors, which a host connects to.

        The ports are those of the first protocol, which each client knows, unless the connection
        is to be encrypted: this takes the second protocol.
        """
        preferred = "v2" if self._options.rbd_ms_mode == "secure" else "v1"
        found = []
        for monitor in self.read("mon dump")["mons"]:
            addresses = {
                address["type"]: address["addr"] for address in monitor["public_addrs"]["addrvec"]
            }
            address = addresses.get(preferred) or next(iter(addresses.values()))
            host, _, port = address.rpartition(":")
            found.append((host.strip("[]"), port))
        return found

    def users(self) -> dict[str, dict[str, str]]:
        """Return the capabilities of all users of the cluster."""
        return {user["entity"]: user["caps"] for user in self.read("auth ls")["auth_dump"]}

    def create_user(self, entity: str, caps: Sequence[str]) -> str | None:
        """Create a user and return its key; None: it exists with other capabilities.

        :param caps: kinds of daemons and capabilities, in turn
        """
        request = {"prefix": "auth get-or-create", "entity": entity, "caps": caps}
        code, answer, reason = self._change(request)
        if code == -errno.EINVAL and "exists" in reason:
            return None
        if code:
            raise self.error(f"User {entity} could not be created", -code, reason)
        return str(answer[0]["key"])

    def set_capabilities(self, entity: str, caps: Sequence[str]) -> bool:
        """Replace the capabilities of a user; False: there is no such user."""
        code, _, reason = self._change({"prefix": "auth caps", "entity": entity, "caps": caps})
        if code not in {0, -errno.ENOENT}:
            raise self.error(f"User {entity} could not be changed", -code, reason)
        return code == 0

    def delete_user(self, entity: str) -> None:
        """Delete a user, if there is one; its clients stay connected."""
        code, _, reason = self._change({"prefix": "auth rm", "entity": entity})
        if code not in {0, -errno.ENOENT}:
            raise self.error(f"User {entity} could not be deleted", -code, reason)

    def blocklist(self, address: str) -> None:
        """Have OSDs refuse one client: its address and nonce.

        An OSD learns of it within a moment, at the latest with the first request of a client that
        connects afterwards.
        """
        request = {
            "prefix": "osd blocklist",
            "blocklistop": "add",
            "addr": address,
            "expire": float(BLOCKLIST_SECONDS),
        }
        code, _, reason = self._change(request)
        if code:
            raise self.error(f"Client {address} could not be blocklisted", -code, reason)

    def blocklisted(self) -> frozenset[str]:
        """Return the addresses that OSDs refuse."""
        return frozenset(entry["addr"] for entry in self.read("osd blocklist ls"))

    def _change(self, request: dict[str, Any]) -> tuple[int, Any, str]:
        with self._connected():
            base.check_still_owner()
            return self._command(request)

    def _command(
        self, request: dict[str, Any], monitor: str | None = None
    ) -> tuple[int, Any, str]:
        """Run a command of the monitors; returns its code, its answer and the reason."""
        line = json.dumps({"format": "json", **request})
        target = {"target": monitor} if monitor else {}
        doing = f"'ceph {request['prefix']}' failed"
        with self._connected() as connection:
            try:
                code, output, reason = connection.mon_command(line, b"", **target)
            except bindings.load().rados.Error as error:
                raise self.error(doing, getattr(error, "errno", None), f"{error}") from error
        # Some commands print a second value behind the first one.
        answer = json.JSONDecoder().raw_decode(output.decode().strip() or "null")[0]
        return code, answer, reason

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        """Use the connection for the block; yields rados.Rados."""
        with self._mutex:
            if self._connection is None:
                self._connection = _Connection(self._connect())
            used = self._connection
            used.users += 1
        try:
            yield used.rados
        finally:
            with self._mutex:
                used.users -= 1
                is_unused = used.is_closed and not used.users
            if is_unused:
                used.rados.shutdown()

    def _connect(self) -> Any:
        options, rados = self._options, bindings.load().rados
        settings = connection_settings(options)
        name = self.entity
        try:
            connection = rados.Rados(name=name, conffile=options.rbd_ceph_conf, conf=settings)
        except rados.Error as error:
            raise exception.BackendError(
                f"rbd_ceph_conf: {options.rbd_ceph_conf} cannot be read: {error}.", final=True
            ) from error
        try:
            with _shutdown_on_error(connection):
                connection.connect()
        except (rados.PermissionDeniedError, rados.PermissionError, rados.ObjectNotFound) as error:
            # Without a keyring librados reports that an object is not found.
            raise exception.BackendError(
                f"rbd_user: the cluster refuses {name}, or the keyring of {options.rbd_ceph_conf} "
                f"has no right key of it: {error}.",
                final=True,
            ) from error
        except rados.Error as error:
            raise exception.BackendUnreachable(
                f"The monitors that {options.rbd_ceph_conf} (rbd_ceph_conf) names do not answer "
                f"in {options.rbd_timeout} s (rbd_timeout): {error}."
            ) from error
        return connection

    def error(self, doing: str, code: int | None, reason: str) -> exception.BackendError:
        """Return the error for what failed.

        :param code: an errno, if it is known
        """
        if code == errno.ESHUTDOWN:
            return self._blocklisted_error(doing)
        if code in _NO_SPACE:
            pools = " or ".join(
                _find_full_pools(self, self._options.rbd_pools) or self._options.rbd_pools
            )
            return exception.BackendError(
                f"{doing}: pool {pools} is full. Add OSDs, raise its quota, or delete volumes."
            )
        if code in _NO_ANSWER:
            return exception.BackendUnreachable(
                f"{doing}: the cluster did not answer in {self._options.rbd_timeout} s: {reason}."
            )
        if code in {errno.EACCES, errno.EPERM}:
            return exception.BackendError(f"{doing}: {self.entity} may not do it; {_RIGHTS}.")
        return exception.BackendError(f"{doing}: {reason}.")

    def _blocklisted_error(self, doing: str) -> exception.BackendError:
        """Have the next call use another connection: OSDs refuse this one."""
        with self._connected() as connection:
            own = _find_own_addresses(connection.get_addrs())
        removed = sorted(own & self.blocklisted())
        for entry in removed:
            # A new connection has another nonce, but an entry may be one of the whole address.
            self._change({"prefix": "osd blocklist", "blocklistop": "rm", "addr": entry})
        entries = ", ".join(removed)
        self.close()
        if entries:
            LOG.error(
                "%s: the manager was blocklisted, as %s: by a person, or by a user of the cluster "
                "with the profile rbd. The entry was removed; find out who made it.",
                self.entity,
                entries,
            )
        return exception.BackendUnreachable(
            f"{doing}: the manager was blocklisted itself ({entries or 'the entry is gone'}). Its "
            "entry was removed, and it connects again; its log has more."
        )


def blocklist_each(cluster: Cluster, addresses: Collection[str]) -> None:
    """Blocklist clients, some at the same time: the monitors take a second for each change.

    A host decides how many clients it has.
    """
    if len(addresses) < 2:  # noqa: PLR2004 (no thread for one)
        for address in addresses:
            cluster.blocklist(address)
        return
    with futures.ThreadPoolExecutor(_PARALLEL_CHANGES, "blocklist") as pool:
        # Each with the ownership of this thread.
        runs = [contextvars.copy_context().run for _ in addresses]
        list(pool.map(lambda run, it: run(cluster.blocklist, it), runs, sorted(addresses)))


def describe_health(cluster: Cluster) -> str:
    """Return what the monitors report, for the end of a reason; "" without an answer."""
    try:
        checks = cluster.read("health")["checks"]
    except exception.BackendError:
        return ""
    messages = sorted(check["summary"]["message"] for check in checks.values())
    return f"; Ceph reports: {', '.join(messages)}" if messages else ""


def _find_full_pools(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """List the pools that take no more data: their OSDs are full, or a quota is reached."""
    try:
        pools = cluster.read("osd dump")["pools"]
    except exception.BackendError:
        return []
    flags = {pool["pool_name"]: pool["flags_names"].split(",") for pool in pools}
    return [name for name in names if "full" in flags.get(name, ())]


def _find_own_addresses(text: str) -> set[str]:
    """Return the entries of a blocklist that concern a client, by its addresses.

    :param text: of all its addresses: ``[v2:192.0.2.1:0/7,v1:192.0.2.1:0/7]``
    """
    found = _ADDRESS.findall(text)
    return {entry for host, nonce in found for entry in (f"{host}:0/{nonce}", f"{host}:0/0")}


def connection_settings(options: cfg.ConfigOpts.GroupAttr) -> dict[str, str]:
    """Return the settings of a connection, beside those of the configuration file."""
    timeout = f"{options.rbd_timeout}"
    settings = {
        "client_mount_timeout": timeout,
        "rados_mon_op_timeout": timeout,
        "rados_osd_op_timeout": timeout,
        # The second format of clones: their snapshots need no protection.
        "rbd_default_clone_format": "2",
    }
    if options.rbd_ms_mode:
        settings |= {
            "ms_client_mode": options.rbd_ms_mode,
            "ms_mon_client_mode": options.rbd_ms_mode,
        }
    return settings
