# SPDX-License-Identifier: Apache-2.0
"""The configured backends and their drivers; made once per manager process."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any

from oslo_log import log
from stevedore import driver as entry_point

from attachd import conf, exception
from attachd.conf import CONF
from attachd.drivers import base
from attachd.manager import engine, turns
from attachd.manager.patience import LongWork

LOG = log.getLogger(__name__)


class Backend:
    """One configured backend: its driver, whether it is ready, and its locks.

    :ivar name: the configuration group
    :ivar host: ``host@backend``, the name of its RPC server
    :ivar error: why it is not ready, or None once it is
    :ivar long_work: what is done for it beside the threads that answer
    """

    def __init__(self, name: str, driver: base.Driver) -> None:
        self.name = name
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
        reason = engine.reason(error)
        if reason != self.error:
            LOG.error("Backend %s is down", self.name, exc_info=error)
        self.error = reason

    def check_ready(self) -> None:
        """Raise Unavailable while the backend cannot be used."""
        if self.error is not None:
            raise exception.Unavailable(reason=f"Backend {self.name} is down: {self.error}")

    @contextlib.contextmanager
    def lock(self, volume_id: str) -> Iterator[None]:
        """Let workers of this machine work on a volume one at a time, in turn."""
        with turns.taken(_lock_path(volume_id)):
            yield

    def is_idle(self, volume_id: str) -> bool:
        """Tell whether nobody on this machine works on a volume at this moment."""
        return turns.is_free(_lock_path(volume_id))

    def forget_lock(self, volume_id: str) -> None:
        """Remove what a deleted volume's lock leaves on disk; its holder does it.

        Somebody may still wait for it: once let in, all they find is that the volume is gone.
        """
        turns.forget(_lock_path(volume_id))


def _locks_folder() -> pathlib.Path:
    return pathlib.Path(CONF.state_path) / "locks"


def _lock_path(volume_id: str) -> pathlib.Path:
    return _locks_folder() / f"attachd-volume-{volume_id}"


def load() -> list[Backend]:
    """Make a backend of each name in ``enabled_backends``.

    :raises ConfigurationError: a backend has no ``driver``, or one that is not installed
    """
    _locks_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    return [Backend(name, _driver(name)) for name in CONF.enabled_backends]


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
    driver: base.Driver = found(name, CONF)
    return driver
