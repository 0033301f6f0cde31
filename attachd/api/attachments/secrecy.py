# SPDX-License-Identifier: Apache-2.0
"""Keeps secrets of connections from those who may look at attachments only; used by view.py.

A secret is what its name says to be one, wherever in the connection it is: drivers may say what
they like there.
"""

from collections.abc import Mapping
import re
from typing import Any, Final

from attachd.api import policy as rules
from attachd.api.attachments import policy
from attachd.context import RequestContext

SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|keyring|credential|(^|_)(secret|token|key)s?$", re.IGNORECASE
)
"""Found in names such as auth_password, keyring and dhchap_key, not in secret_uuid."""


class Seer:
    """Tells which attachments a caller may see with their secrets; for one request."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._decided: dict[tuple[str, str | None], bool] = {}

    def sees(self, project_id: str, user_id: str | None) -> bool:
        """Tell whether the caller sees the secrets of an attachment of this project and user."""
        owner = (project_id, user_id)
        if owner not in self._decided:
            target = {"project_id": project_id, "user_id": user_id}
            self._decided[owner] = rules.allows(self._ctx, policy.CONNECTION_INFO, target)
        return self._decided[owner]


def without_secrets(value: Any) -> Any:
    """Return a connection, or a part of it, without what is secret."""
    if isinstance(value, Mapping):
        return {
            key: without_secrets(each)
            for key, each in value.items()
            if not SECRET.search(str(key))
        }
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return value
