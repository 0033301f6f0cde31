# SPDX-License-Identifier: Apache-2.0
"""The identity of a host: what storage knows of it, its machine id, and at last its name.

A name is what a caller writes: one machine has a short and a long one, in any case of letters.  An
initiator is what a backend admits.  So :func:`is_same_host` asks the initiators first.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
import dataclasses
import hashlib
import ipaddress
import re
from typing import Any, Final, Generic, TypeVar

Connector = Mapping[str, Any]
T = TypeVar("T")

_KINDS: Final = {"initiator": "iscsi", "nqn": "nvme", "wwpns": "fc", "system uuid": "machine"}
"""The kinds of identifiers, by the keys of connectors, in the order of :func:`primary`."""
_MACHINE: Final = _KINDS["system uuid"]
_ORDER: Final = (*_KINDS.values(),)
_MAX_KEY: Final = 255
"""Of the column; a letter in lower case may be two, as "\u0130" is."""
_MAX_VALUE: Final = 223
"""Of an iSCSI name and an NQN (RFC 3720, NVMe base specification); longer values are hashed."""
MAX_CONNECTOR_SIZE: Final = 64 * 1024
"""Bytes of JSON that a stored connector has at most."""
MAX_IDENTIFIERS: Final = 64
"""How many identifiers of a connector count: initiators first, of which it has fewer."""

_WWPN: Final = re.compile("(0x)?[0-9a-f]{2}(:?[0-9a-f]{2}){7}")

_NO_MACHINES: Final = frozenset(
    {
        "00000000-0000-0000-0000-000000000000",
        "03000200-0400-0500-0006-000700080009",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    }
)
"""What firmware reports of machines that were given no UUID."""


_PART: Final = r"\x00-\x1f\x7f/\\?#%"
NAME_PATTERN: Final = rf"\A(?!\.+\Z)(?! )[^{_PART}]*(?<! )\Z"
"""What a name of a host may be: a URL has to carry it as one part of a path.

A path is split at slashes, and ends at "?" and "#".  Servers and proxies decode "%2F" before they
split, take a backslash for a slash, and remove "." and "..".  MariaDB ignores spaces at the end.
"""
NAME_DESCRIPTION: Final = (
    "the name of a host: not only dots, no space at the begin or the end, no control characters, "
    "and none of / \\ ? # %"
)


@dataclasses.dataclass(frozen=True)
class HostIdentity:
    """What is known of a host.

    :ivar name: as it was sent
    :ivar identifiers: each "KIND:VALUE", where the kind is iscsi, nvme, fc or machine
    """

    name: str
    identifiers: frozenset[str] = frozenset()

    @property
    def initiators(self) -> frozenset[str]:
        """The identifiers by which storage admits the host."""
        return frozenset(item for item in self.identifiers if kind(item) != _MACHINE)

    @property
    def key(self) -> str:
        """Return the key that all spellings of the name share, and some names of others."""
        return host_key(self.name)


def of_connector(connector: Connector) -> HostIdentity:
    """Return the identity of the host that a connector describes.

    No machine ids of a connector, which its sender makes up, displace an initiator.
    """
    identifiers = (
        identifier(_KINDS[key], value) for key in _KINDS for value in _values(connector.get(key))
    )
    known = sorted({item for item in identifiers if item}, key=_rank)
    return HostIdentity(str(connector.get("host") or ""), frozenset(known[:MAX_IDENTIFIERS]))


def of_row(row: Mapping[str, Any]) -> HostIdentity:
    """Return the identity of the host of an attachment's row, also of one without connector."""
    if row.get("connector"):
        found = of_connector(row["connector"])
        return dataclasses.replace(found, name=row.get("host") or found.name)
    stored = row.get("initiator_key")
    return HostIdentity(row.get("host") or "", frozenset({stored} if stored else ()))


def columns(host: str | None, connector: Connector | None) -> dict[str, str | None]:
    """Return the columns of an attachment by which its host is found."""
    known = primary(of_connector(connector).identifiers) if connector else None
    return {"host_key": host_key(host) if host else None, "initiator_key": known}


def identifier(kind_: str, value: str) -> str:
    """Return an identifier in the form in which it is compared; "": the value names nothing."""
    text = value.strip().lower()
    if kind_ == _KINDS["wwpns"]:
        text = text.removeprefix("0x").replace(":", "")
    if not text or (kind_ == _MACHINE and text in _NO_MACHINES):
        return ""
    if len(text) > _MAX_VALUE:
        text = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{kind_}:{text}"


def parse_initiator(name: str) -> str | None:
    """Return the identifier of an initiator that a person writes; None: it is none."""
    text = name.strip().lower()
    if text.startswith(("iqn.", "eui.", "naa.")):
        return identifier(_KINDS["initiator"], text)
    if text.startswith("nqn."):
        return identifier(_KINDS["nqn"], text)
    return identifier(_KINDS["wwpns"], text) if _WWPN.fullmatch(text) else None


def kind(identifier_: str) -> str:
    """Return the kind of an identifier."""
    return identifier_.partition(":")[0]


def value(identifier_: str) -> str:
    """Return an identifier as people know it, without its kind."""
    return identifier_.partition(":")[2]


def primary(identifiers: Iterable[str]) -> str | None:
    """Return the identifier that stands for all of a host; None: it has none."""
    return min(identifiers, key=_rank, default=None)


def _rank(item: str) -> tuple[int, str]:
    return _ORDER.index(kind(item)), item


def _values(stored: Any) -> list[str]:
    values = stored if isinstance(stored, list) else [stored]
    return [str(item) for item in values if item]


# ---- Comparison ----


def is_same_host(one: HostIdentity, other: HostIdentity) -> bool:
    """Return whether two identities are of one host.

    A common initiator decides, or an equal name.  Else hosts whose initiators of one kind differ
    are two.  Else the machine id decides, and at last the short and the long form of a name.
    """
    if one.initiators & other.initiators or is_equal_name(one.name, other.name):
        return True
    if _common_kinds(one, other):
        return False
    return bool(one.identifiers & other.identifiers) or is_same_name(one.name, other.name)


class HostIndex(Generic[T]):
    """Finds what belongs to a host without a comparison of all pairs.

    :param items: with the identities of their hosts
    """

    def __init__(self, items: Iterable[tuple[HostIdentity, T]]) -> None:
        self._by_mark = defaultdict[str, dict[int, tuple[HostIdentity, T]]](dict)
        for number, item in enumerate(items):
            for mark in _marks(item[0]):
                self._by_mark[mark][number] = item

    def list_same(self, identity: HostIdentity) -> list[T]:
        """Return the items whose hosts are a host, as of :func:`is_same_host`."""
        candidates = {
            number: item
            for mark in _marks(identity)
            for number, item in self._by_mark.get(mark, {}).items()
        }
        return [item for other, item in candidates.values() if is_same_host(other, identity)]


def _marks(identity: HostIdentity) -> frozenset[str]:
    """Return texts of which all identities of one host have at least one in common."""
    # As is_same_name() compares: a name that ends with " ." has another key than its normal form.
    return identity.identifiers | {host_key(normal_name(identity.name))}


def has_equal_initiators(one: HostIdentity, other: HostIdentity) -> bool:
    """Return whether of each kind that both have, both have the same initiators."""
    kinds = _common_kinds(one, other)
    return not any(kind(item) in kinds for item in one.initiators ^ other.initiators)


def _common_kinds(one: HostIdentity, other: HostIdentity) -> set[str]:
    return set(map(kind, one.initiators)) & set(map(kind, other.initiators))


def is_equal_name(one: str, other: str) -> bool:
    """Return whether two names differ in nothing but the case and a dot at the end."""
    return normal_name(one) == normal_name(other)


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names are equal, or one is the short form of the other."""
    first, second = normal_name(one), normal_name(other)
    if first == second:
        return True
    is_short = ("." in first) != ("." in second)
    return is_short and host_key(first) == host_key(second)


def host_key(name: str) -> str:
    """Return what all spellings of a name have in common: an address, or the first label."""
    text = normal_name(name)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        key = text.partition(".")[0] or text
    return key if len(key) <= _MAX_KEY else hashlib.sha256(key.encode()).hexdigest()


def normal_name(name: str) -> str:
    """Return what the names have in common that :func:`is_equal_name` takes for equal."""
    return name.strip().lower().rstrip(".")
