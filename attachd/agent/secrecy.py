# SPDX-License-Identifier: Apache-2.0
"""Keeps the secrets of connections out of what is told; for connectors."""

from collections.abc import Iterator, Mapping
from typing import Any

from oslo_utils import strutils

_TELLING = ("password", "secret", "keyring", "_key", "token")
# Shorter ones are no secrets, and would tear up any text.
_SHORTEST = 4


def hidden(text: str, info: Mapping[str, Any]) -> str:
    """Return a text with stars in place of secrets.

    :param info: of the connection, whose secrets they are
    """
    for secret in sorted(_secrets(info), key=len, reverse=True):
        text = text.replace(secret, "***")
    return strutils.mask_password(text)


def _secrets(info: Mapping[str, Any]) -> Iterator[str]:
    for key, value in info.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and any(part in key.lower() for part in _TELLING):
            # A keyring is a text with a secret among others.
            yield from (part for part in {value, *value.split()} if len(part) >= _SHORTEST)
