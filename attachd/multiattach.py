# SPDX-License-Identifier: Apache-2.0
"""Extra specs of a volume type about attaching: how often, and which hosts may write.

``multiattach``, ``<is> True`` or ``<is> False``
    Volumes of the type may be attached several times at once.
``mode``, ``RW`` (the default) or ``RO``
    Whether all hosts may write.  With ``RO`` a multiattach volume has one writer, the first
    server, and all others only read; a volume that is not multiattach is only read.
``max_attachments``, a number
    How many servers may have a multiattach volume at once.
``max_attachments_per_host``, a number
    How many attachments of one volume may be on one host.

A type cannot be changed while volumes have it, and a retype of a volume is one transaction, so
these values hold for all of a volume's attachments.

Source: the specification "Enable multiattach of volumes", which has the first two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import enum
import re
from typing import Final

from oslo_utils import strutils

from attachd import exception

Specs = Mapping[str, str | None]

MULTIATTACH: Final = "multiattach"
MODE: Final = "mode"
MAX_ATTACHMENTS: Final = "max_attachments"
MAX_ATTACHMENTS_PER_HOST: Final = "max_attachments_per_host"
KEYS: Final = frozenset({MULTIATTACH, MODE, MAX_ATTACHMENTS, MAX_ATTACHMENTS_PER_HOST})
"""The extra specs that this module reads."""

_SCOPED: Final = f"capabilities:{MULTIATTACH}"
_LARGEST: Final = 10**6
_NUMBER: Final = re.compile(r"[0-9]{1,7}")


class Mode(enum.StrEnum):
    """Which hosts may write to the volumes of a type."""

    RW = "RW"
    RO = "RO"


@dataclass(frozen=True)
class MultiattachSpec:
    """How the volumes of a type may be attached.

    :ivar max_attachments: number of servers that may have a volume at a time; None: unlimited
    :ivar max_attachments_per_host: number of attachments of a volume on one host; None: unlimited
    """

    multiattach: bool = False
    mode: Mode = Mode.RW
    max_attachments: int | None = None
    max_attachments_per_host: int | None = None


def parse(specs: Specs) -> MultiattachSpec:
    """Read the extra specs of a type, which :func:`check` has validated."""
    return MultiattachSpec(
        multiattach=_is_multiattach(specs),
        mode=Mode.RO if (specs.get(MODE) or "").upper() == Mode.RO else Mode.RW,
        max_attachments=_number(specs.get(MAX_ATTACHMENTS)),
        max_attachments_per_host=_number(specs.get(MAX_ATTACHMENTS_PER_HOST)),
    )


def _is_multiattach(specs: Specs) -> bool:
    verb, _, value = (specs.get(MULTIATTACH) or specs.get(_SCOPED) or "").partition(" ")
    return verb == "<is>" and strutils.bool_from_string(value)


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None


def check(specs: Specs, name: str = "extra_specs") -> None:
    """Validate extra specs.

    :param name: of the field that contains them
    :raises InvalidInput: a value has no meaning
    """
    wrong = {
        MULTIATTACH: _is_no_verdict,
        _SCOPED: _is_no_verdict,
        MODE: _is_no_mode,
        MAX_ATTACHMENTS: _is_no_number,
        MAX_ATTACHMENTS_PER_HOST: _is_no_number,
    }
    for key, reason in wrong.items():
        value = specs.get(key)
        if value is not None and (why := reason(value)):
            raise exception.InvalidInput(field=f"{name}.{key}", value=repr(value), reason=why)


def _is_no_verdict(value: str) -> str:
    verb, _, truth = value.partition(" ")
    try:
        strutils.bool_from_string(truth, strict=True)
    except ValueError:
        verb = ""
    return "" if verb == "<is>" else "It has to be '<is> True' or '<is> False'."


def _is_no_mode(value: str) -> str:
    known = value.upper() in set(Mode)
    return "" if known else "It has to be RW, for hosts that all write, or RO, for one that does."


def _is_no_number(value: str) -> str:
    number = int(value) if _NUMBER.fullmatch(value) else 0
    return "" if 1 <= number <= _LARGEST else f"It has to be a number, 1 to {_LARGEST}."
