# SPDX-License-Identifier: Apache-2.0
"""Find wrong values and unknown names in the configuration; for service, manager and status."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
import difflib
from importlib import metadata
import os
from pathlib import Path
import re
from typing import Any

from oslo_config import cfg
import oslo_messaging as messaging

from attachd.conf.messaging import BROKERS

DEFAULT = "DEFAULT"

_LIBRARIES = (
    "attachd",
    "oslo.concurrency",
    "oslo.db",
    "oslo.log",
    "attachd.messaging",
    "oslo.middleware.healthcheck",
    "oslo.middleware.http_proxy_to_wsgi",
    "oslo.middleware.tracing",
    "oslo.policy",
    "oslo.reports",
    "oslo.service.service",
    "attachd.keystone",
)
"""Libraries with options: at least those of etc/attachd/config-generator.conf.

They are queried in this order; the last one takes longer than all others together.
"""

_FOREIGN = frozenset({"keystone_authtoken", "key_manager", "barbican", "castellan", "vault"})
"""Groups whose options depend on plug-ins that cannot be listed."""

_USUAL = frozenset({"rabbit", "inprocess"})
"""Message queues that are known without a search of installed plug-ins, which takes a moment."""

_RABBIT_PORT = 5672

_LOCATION = re.compile(r"from LocationInfo\(.*?detail='([^']*)'\)")
_VARIABLE = re.compile(r"OS_([A-Z0-9_]+?)__([A-Z0-9_]+)")

Known = Mapping[str, frozenset[str]]
"""Names of known options, by group."""


@dataclass(frozen=True)
class UnknownOption:
    """An unknown name.

    :ivar place: the file, or the environment variable, that has it
    :ivar name: the option; None: the whole group
    :ivar nearest: the probable meaning, as ``[group]option``; None: unknown
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
    """Read every option now: oslo.config finds a wrong value only when it is read.

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
        text = _LOCATION.sub(r"in \1", f"{error}")
        raise cfg.ConfigFileValueError(f"[{group}]{name}: {text}") from error


def parse_transport_url(conf: cfg.ConfigOpts) -> messaging.TransportURL:
    """Check the URL of the message queue now, and not at the first message.

    :raises oslo_config.cfg.ConfigFileValueError: it is invalid, or of an unknown message queue
    """
    return _parse_transport_url(conf, DEFAULT, None)


def parse_agent_transport_url(conf: cfg.ConfigOpts) -> messaging.TransportURL:
    """Check the URL of the virtual host of the agents, as :func:`parse_transport_url`."""
    url: str | None = conf.agent.transport_url
    return _parse_transport_url(conf, "agent" if url else DEFAULT, url)


def is_virtual_host_shared(conf: cfg.ConfigOpts) -> bool:
    """Return whether agents have the virtual host in which managers get their messages.

    :raises oslo_config.cfg.ConfigFileValueError: one of both URLs is invalid
    """
    own, agents = parse_transport_url(conf), parse_agent_transport_url(conf)
    if not conf.agent.enabled or agents.transport not in BROKERS:
        return False
    return _virtual_host(own) == _virtual_host(agents) and bool(_servers(own) & _servers(agents))


def _virtual_host(url: messaging.TransportURL) -> str:
    return url.virtual_host or "/"


def _servers(url: messaging.TransportURL) -> set[tuple[str, int]]:
    return {(host.hostname or "", host.port or _RABBIT_PORT) for host in url.hosts}


def _parse_transport_url(
    conf: cfg.ConfigOpts, group: str, text: str | None
) -> messaging.TransportURL:
    try:
        url: messaging.TransportURL = messaging.TransportURL.parse(conf, text)
    except messaging.InvalidTransportURL as error:
        raise cfg.ConfigFileValueError(f"[{group}]transport_url: {error}") from None
    except ValueError:
        # The wrong port may be a part of a password, so the message does not contain it.
        raise cfg.ConfigFileValueError(
            f"[{group}]transport_url is no URL. What means something in a URL, such as / or # in "
            "a password, has to be percent-encoded."
        ) from None
    if url.transport in _USUAL:
        return url
    known = metadata.entry_points(group="oslo.messaging.drivers").names
    if url.transport not in known:
        raise cfg.ConfigFileValueError(
            f"[{group}]transport_url: {url.transport!r} is none of {', '.join(sorted(known))}."
        )
    return url


def find_unknown_options(
    conf: cfg.ConfigOpts, environment: Mapping[str, str] = os.environ
) -> list[UnknownOption]:
    """List the unknown names in the files that were read, and in the environment.

    The search for all known names takes a moment, so one library is queried after the other, until
    each name in the files is known.
    """
    written = [*_in_files(conf), *_in_variables(environment)]
    sections = {value for _place, _group, name, value in written if name == "auth_section"}
    authenticating = {group for _place, group, name, _value in written if name == "auth_type"}
    foreign = _FOREIGN | set(conf.config_source) | sections | authenticating
    written = [item for item in written if item[1] not in foreign]
    known: Known = {}
    for known in _known_by_library(_registered(conf)):
        drivers = _drivers_of(written, known)
        if all(name in drivers.get(group, known.get(group, ())) for _, group, name, _ in written):
            return []
    drivers = _groups_of_drivers(written, known)
    found = [_unknown_option(item, drivers, known) for item in written]
    return list(dict.fromkeys(item for item in found if item))


_Written = tuple[str, str, str, str]
"""Place, group, option and value."""


def _files(conf: cfg.ConfigOpts) -> Iterator[str]:
    yield from conf.config_file or ()
    for folder in conf.config_dir or ():
        yield from (str(path) for path in sorted(Path(folder).glob("*.conf")))


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


def _known_by_library(registered: Known) -> Iterator[Known]:
    """Yield the known options after each library, with their deprecated names."""
    yield registered
    names = {group: set(options) for group, options in registered.items()}
    points = {point.name: point for point in metadata.entry_points(group="oslo.config.opts")}
    for point in (points[name] for name in _LIBRARIES if name in points):
        for group, options in point.load()():
            for option in options:
                _add(names, str(getattr(group, "name", group) or DEFAULT), option)
        yield {group: frozenset(options) for group, options in names.items()}


def _add(names: dict[str, set[str]], group: str, option: cfg.Opt) -> None:
    names.setdefault(group, set()).add(option.dest)
    for former in option.deprecated_opts:
        place = names.setdefault(former.group or group, set())
        place.add((former.name or option.dest).replace("-", "_"))


def _drivers_of(written: Iterable[_Written], known: Known) -> Known:
    """Return the options of each backend's group, by the driver that it names.

    The options of a driver are known as those of a group with the driver's name.
    """
    named = {group: value for _place, group, name, value in written if name == "driver"}
    return {group: known[value] for group, value in named.items() if value in known}


def _groups_of_drivers(written: Sequence[_Written], known: Known) -> Known:
    """Add the groups whose driver is not installed; libraries may have such an option, too."""
    named = {group for _place, group, name, _value in written if name == "driver"}
    nothing = dict.fromkeys(named - known.keys(), frozenset({"driver"}))
    return {**nothing, **_drivers_of(written, known)}


def _unknown_option(item: _Written, drivers: Known, known: Known) -> UnknownOption | None:
    place, group, name, _value = item
    names = drivers.get(group, known.get(group))
    if names is None:
        return UnknownOption(place, group, None, _near_group(group, known))
    return _unknown_in_group(names, place, group, name, known)


def _unknown_in_group(
    names: frozenset[str], place: str, group: str, name: str, known: Known
) -> UnknownOption | None:
    if name in names:
        return None
    return UnknownOption(place, group, name, _near_option(names, group, name, known))


def _near_option(names: frozenset[str], group: str, name: str, known: Known) -> str | None:
    """Find the same name in another group, or a similar one in this group."""
    groups = sorted(other for other, options in known.items() if name in options)
    if groups:
        return f"[{groups[0]}]{name}"
    near = difflib.get_close_matches(name, sorted(names), 1)
    return f"[{group}]{near[0]}" if near else None


def _near_group(group: str, known: Known) -> str | None:
    near = difflib.get_close_matches(group, sorted(known), 1)
    return f"[{near[0]}]" if near else None
