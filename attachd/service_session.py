# SPDX-License-Identifier: Apache-2.0
"""Sessions of keystoneauth with other services, by the group of options that each of them has.

The groups [nova] and [glance] have the same options, with which the credentials of this service
are found, and a connection is made.
"""

import contextlib
import os
import threading
from typing import Any

from keystoneauth1 import adapter, loading
from keystoneauth1 import exceptions as auth_exceptions
from oslo_config import cfg

from attachd import exception
from attachd.conf import CONF


def has_credentials(group: str) -> bool:
    """Return whether a group has credentials."""
    return bool(CONF[group].auth_type or CONF[group].auth_section)


def load_credentials(group: str, user: str) -> Any:
    """Return the plug-in of keystoneauth that a group configures.

    A process has one for each group as long as the options of the group are the same: it keeps its
    token and the catalogue until the token expires or is refused.

    :param user: what the user of the credentials has to be, for messages
    :raises ConfigurationError: it configures none, or not completely
    """
    section = CONF[group].auth_section or group
    if section != group:
        with contextlib.suppress(cfg.DuplicateOptError):  # A group that has these options.
            loading.register_auth_conf_options(CONF, section)
    try:
        plugin = loading.load_auth_from_conf_options(CONF, section)
    except auth_exceptions.ClientException as error:
        raise exception.ConfigurationError(reason=f"[{section}] is invalid: {error}") from error
    if plugin is None:
        raise exception.ConfigurationError(
            reason=f"[{section}] has no auth_type: set auth_type = password and a user who "
            f"{user}, or auth_section."
        )
    return _find_known(section, plugin)


class _Process:
    """The plug-ins of a process; a forked process starts with none."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.lock = threading.Lock()
        self.plugins: dict[str, tuple[dict[str, Any], Any]] = {}


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def _find_known(section: str, plugin: Any) -> Any:
    """Return the plug-in that was made of the same options before, else this one from now on."""
    options = dict(CONF[section])
    with _process.lock:
        before, known = _process.plugins.get(section, (None, None))
        if before == options:
            return known
        _process.plugins[section] = (options, plugin)
    return plugin


def connect(group: str, plugin: Any, service_type: str, **more: Any) -> adapter.Adapter:
    """Return an adapter to a service, with the options of its group.

    :param plugin: of keystoneauth: a token, or credentials
    :param more: of the adapter
    """
    options = CONF[group]
    session = loading.session.Session().load_from_options(
        insecure=options.insecure,
        cacert=options.cafile,
        cert=options.certfile,
        key=options.keyfile,
        timeout=options.read_timeout,
    )
    return adapter.Adapter(
        session,
        auth=plugin,
        service_type=service_type,
        interface=options.interface,
        region_name=options.region_name,
        **more,
    )


def send(connected: adapter.Adapter, group: str, method: str, path: str, **options: Any) -> Any:
    """Send one request; return the response, with any status.

    :raises ClientException, OSError: there is none
    """
    timeout = (CONF[group].connect_timeout, CONF[group].read_timeout)
    options = {"timeout": timeout, **options}
    return connected.request(path, method, **options, raise_exc=False, redirect=False)
