# SPDX-License-Identifier: Apache-2.0
"""The configured backends and their drivers; made once per manager process."""

from collections.abc import Iterator
import contextlib
from contextlib import AbstractContextManager
import pathlib
from typing import Any

from oslo_log import log
from stevedore import driver as entry_point

from attachd import conf, exception
from attachd.conf import CONF
from attachd.db import leases as leases_db
from attachd.drivers import base
from attachd.manager import flow_runner
from attachd.manager.background_tasks import LongWork
from attachd.manager.ha import volume_lease, volume_lock
from attachd.manager.ha.membership import Presence
from attachd.manager.ha.volume_lease import Turn

__all__ = ["Backend", "Turn", "load"]

LOG = log.getLogger(__name__)


class Backend:
    """One configured backend: its driver, whether it is ready, and its locks.

    :ivar name: the configuration group
    :ivar host: ``host@backend``, the name of its RPC server
    :ivar error: why it is not ready, or None once it is
    :ivar presence: this process, among those that serve the backend
    :ivar long_work: what is done for it beside the threads that answer
    """

    def __init__(self, name: str, driver: base.Driver, presence: Presence | None = None) -> None:
        self.name = name
        self.presence = presence or Presence()
        self.host = f"{CONF.host}@{name}"
        self.driver = driver
        self.error: str | None = "The backend has not been set up yet."
        self.long_work = LongWork(name, CONF.manager.copies_per_backend)

    def setup(self) -> bool:
        """Try to make the backend ready; a broken one says why and can be tried again."""
        try:
            self.driver.setup()
        except Exception as error:  # noqa: BLE001  logged there
            self.take_down(error)
        else:
            self.error = None
        return self.error is None

    def take_down(self, error: Exception) -> None:
        """Let nobody use the backend before it has been set up again; logged once a reason."""
        reason = flow_runner.reason(error)
        if reason != self.error:
            LOG.error("Backend %s is down", self.name, exc_info=error)
        self.error = reason

    def check_ready(self) -> None:
        """Raise Unavailable while the backend cannot be used."""
        if self.error is not None:
            raise exception.Unavailable(reason=f"Backend {self.name} is down: {self.error}")

    def turn(self, volume_id: str) -> AbstractContextManager[Turn]:
        """Have a volume to oneself from the first move on.

        ::

            with backend.turn(volume_id) as turn:
                moved = turn.begin(lambda lease: db.move(..., lease=lease))

        :raises Unavailable: others have it for too long
        """
        turn = volume_lease.turn(self.presence, volume_id, _turn_path(volume_id))
        return volume_lease.measured(self.host, turn)

    @contextlib.contextmanager
    def lock(self, volume_id: str) -> Iterator[Turn]:
        """Have a volume to oneself at once, at the price of two transactions.

        :raises VolumeNotFound: there is no such volume
        :raises Unavailable: others have it for too long
        """
        with self.turn(volume_id) as turn:
            turn.begin(leases_db.take)
            yield turn

    def is_idle(self, volume_id: str) -> bool:
        """Tell whether it is nobody's turn on this machine at this moment."""
        return volume_lock.is_free(_turn_path(volume_id))

    def leftovers(self) -> list[str]:
        """Return the volumes whose leases nobody works under, on this machine or at all."""
        found = leases_db.leftovers(self.host, self.presence.id)
        return [each for each in found if self.is_idle(each)]

    def forget_turn(self, volume_id: str) -> None:
        """Remove what the turns of a deleted volume leave on disk; the last one does it.

        Somebody may still wait for it: once let in, all they find is that the volume is gone.
        """
        volume_lock.forget(_turn_path(volume_id))


def _turns_folder() -> str:
    return f"{CONF.state_path}/locks"


def _turn_path(volume_id: str) -> str:
    return f"{_turns_folder()}/attachd-volume-{volume_id}"


def load(presence: Presence | None = None) -> list[Backend]:
    """Make a backend of each name in ``enabled_backends``.

    :param presence: of the process that is going to work on them; None: nobody is
    :raises ConfigurationError: a backend has no ``driver``, or one that is not installed
    """
    pathlib.Path(_turns_folder()).mkdir(mode=0o700, parents=True, exist_ok=True)
    return [Backend(name, _driver(name), presence) for name in CONF.enabled_backends]


def _driver(name: str) -> base.Driver:
    CONF.register_opt(conf.manager.DRIVER, group=name)
    wanted = CONF[name].driver
    if not wanted:
        raise exception.ConfigurationError(
            reason=f"Backend {name} is in enabled_backends, but [{name}] has no option driver."
        )
    try:
        found: Any = entry_point.DriverManager("attachd.drivers", wanted).driver
    except RuntimeError as error:
        raise exception.ConfigurationError(
            reason=f"[{name}]driver: there is no storage driver {wanted!r}."
        ) from error
    CONF.register_opts(found.OPTIONS, group=name)
    conf.checking.check_values(CONF, name)
    driver: base.Driver = found(name, CONF)
    return driver
