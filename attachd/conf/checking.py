# SPDX-License-Identifier: Apache-2.0
"""Finds wrong values and names that nobody reads; used by service, the manager and status."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
import difflib
from importlib import metadata
import os
from pathlib import Path
import re
from typing import Any

from oslo_config import cfg
import oslo_messaging as messaging

DEFAULT = "DEFAULT"

_LIBRARIES = (
    "attachd",
    "attachd.keystone",
    "oslo.concurrency",
    "oslo.db",
    "oslo.log",
    "oslo.messaging",
    "oslo.middleware.healthcheck",
    "oslo.middleware.http_proxy_to_wsgi",
    "oslo.middleware.tracing",
    "oslo.policy",
    "oslo.reports",
    "oslo.service.service",
)
"""Whose options there are: at least those of etc/attachd/config-generator.conf."""

_FOREIGN = frozenset({"keystone_authtoken", "key_manager", "barbican", "castellan", "vault"})
"""Groups whose options depend on plug-ins that nobody can list."""

_VARIABLE = re.compile(r"OS_([A-Z0-9_]+?)__([A-Z0-9_]+)")

Known = Mapping[str, frozenset[str]]
"""The names of options that there are, by group."""


@dataclass(frozen=True)
class Stranger:
    """A name that nobody reads.

    :ivar place: the file, or the environment variable, that has it
    :ivar name: the option; None: the whole group
    :ivar nearest: what was probably meant, as ``[group]option``; None: nobody knows
    """

    place: str
    group: str
    name: str | None
    nearest: str | None

    def __str__(self) -> str:
        """Return a sentence for the log."""
        what = f"[{self.group}]{self.name or ''}"
        kind = "option" if self.name else "group of options"
        said = f"{self.place}: there is no {kind} {what}, so it does nothing."
        return f"{said} Did you mean {self.nearest}?" if self.nearest else said


def check_values(conf: cfg.ConfigOpts, *groups: str) -> None:
    """Read every option now: oslo.config would find a wrong value when something reads it.

    :param groups: which ones; none named: all that are registered
    :raises oslo_config.cfg.ConfigFileValueError: a value is wrong; names ``[group]option``
    """
    for name in groups or conf:
        read = _value(conf, DEFAULT, name)
        if isinstance(read, Mapping):
            for option in read:
                _value(read, name, option)


def _value(where: Mapping[str, Any], group: str, name: str) -> Any:
    try:
        return where[name]
    except ValueError as error:
        raise cfg.ConfigFileValueError(f"[{group}]{name}: {error}") from error


def queue_url(conf: cfg.ConfigOpts) -> messaging.TransportURL:
    """Read the URL of the message queue now: whoever uses it would find out in the midst of work.

    :raises oslo_config.cfg.ConfigFileValueError: it is none, or of a queue that nobody knows
    """
    try:
        url = messaging.TransportURL.parse(conf)
    except messaging.InvalidTransportURL as error:
        raise cfg.ConfigFileValueError(f"[DEFAULT]transport_url: {error}") from None
    except ValueError:
        # What it was that is no port may be half of a password: it is told to nobody.
        raise cfg.ConfigFileValueError(
            "[DEFAULT]transport_url is no URL. What means something in a URL, such as / or # in "
            "a password, has to be percent-encoded."
        ) from None
    known = metadata.entry_points(group="oslo.messaging.drivers").names
    if url.transport not in known:
        raise cfg.ConfigFileValueError(
            f"[DEFAULT]transport_url: {url.transport!r} is none of {', '.join(sorted(known))}."
        )
    return url


def strangers(conf: cfg.ConfigOpts, environment: Mapping[str, str] = os.environ) -> list[Stranger]:
    """List the names in the files that were read, and in the environment, that nobody reads.

    All names that there are take a moment to find out, so that is left to a file which has a name
    that nobody has registered yet.
    """
    written = [*_in_files(conf), *_in_variables(environment)]
    registered = _registered(conf)
    if all(each[2] in registered.get(each[1], ()) for each in written):
        return []
    known = _known(registered)
    sections = {value for _place, _group, name, value in written if name == "auth_section"}
    foreign = _FOREIGN | set(conf.config_source) | sections
    drivers = _drivers_of(written, known)
    found = []
    for place, group, name, _value in written:
        if group in foreign:
            continue
        if group in drivers:
            stranger = _among(drivers[group], place, group, name, known)
        elif group in known:
            stranger = _among(known[group], place, group, name, known)
        else:
            stranger = Stranger(place, group, None, _near_group(group, known))
        if stranger and stranger not in found:
            found.append(stranger)
    return found


_Written = tuple[str, str, str, str]
"""Place, group, option and value."""


def _files(conf: cfg.ConfigOpts) -> Iterator[str]:
    yield from conf.config_file or ()
    for folder in conf.config_dir or ():
        yield from (str(each) for each in sorted(Path(folder).glob("*.conf")))


def _in_files(conf: cfg.ConfigOpts) -> Iterator[_Written]:
    for file in _files(conf):
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(file, sections).parse()
        for group, options in sections.items():
            for name, values in options.items():
                yield file, group, name.replace("-", "_"), values[-1]


def _in_variables(environment: Mapping[str, str]) -> Iterator[_Written]:
    for variable, value in environment.items():
        if found := _VARIABLE.fullmatch(variable):
            group = DEFAULT if found[1] == DEFAULT else found[1].lower()
            yield variable, group, found[2].lower(), value


def _registered(conf: cfg.ConfigOpts) -> dict[str, frozenset[str]]:
    groups = {name: frozenset(conf[name]) for name in conf if isinstance(conf[name], Mapping)}
    return {**groups, DEFAULT: frozenset(conf) - groups.keys()}


def _known(registered: Known) -> Known:
    """Add the options of all libraries, with the names that they once had."""
    names = {group: set(options) for group, options in registered.items()}
    points = metadata.entry_points(group="oslo.config.opts")
    for point in (each for each in points if each.name in _LIBRARIES):
        for group, options in point.load()():
            for option in options:
                _add(names, str(getattr(group, "name", group) or DEFAULT), option)
    return {group: frozenset(options) for group, options in names.items()}


def _add(names: dict[str, set[str]], group: str, option: cfg.Opt) -> None:
    names.setdefault(group, set()).add(option.dest)
    for former in option.deprecated_opts:
        place = names.setdefault(former.group or group, set())
        place.add((former.name or option.dest).replace("-", "_"))


def _drivers_of(written: Iterable[_Written], known: Known) -> dict[str, frozenset[str]]:
    """Return the options of each group that is a backend's, by the driver that it names.

    The options of a driver are known as those of a group with the driver's name.  Groups of
    libraries may have an option of that name, too.
    """
    named = {group: value for _place, group, name, value in written if name == "driver"}
    return {
        group: known.get(value, frozenset({"driver"}))
        for group, value in named.items()
        if value in known or group not in known
    }


def _among(
    names: frozenset[str], place: str, group: str, name: str, known: Known
) -> Stranger | None:
    if name in names:
        return None
    return Stranger(place, group, name, _near_option(names, group, name, known))


def _near_option(names: frozenset[str], group: str, name: str, known: Known) -> str | None:
    """Find the same name in another group, else one that is spelled much the same in this one."""
    elsewhere = sorted(each for each, options in known.items() if name in options)
    if elsewhere:
        return f"[{elsewhere[0]}]{name}"
    near = difflib.get_close_matches(name, sorted(names), 1)
    return f"[{group}]{near[0]}" if near else None


def _near_group(group: str, known: Known) -> str | None:
    near = difflib.get_close_matches(group, sorted(known), 1)
    return f"[{near[0]}]" if near else None
