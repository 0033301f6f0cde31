# SPDX-License-Identifier: Apache-2.0
"""What stands for the desired states of a host, so that they need not be sent again."""

from collections.abc import Iterable, Mapping
import hashlib
import json
from typing import Any, Final

_NOT_COMPARED: Final = "lease"
"""A report has its length, and the answer to a report only confirms it."""


def digest(desired: Iterable[Mapping[str, Any]]) -> str:
    """Return a digest of the desired states in an answer to a report.

    :param desired: each as agent_manager_api.DesiredState
    """
    states = [
        {name: value for name, value in state.items() if name != _NOT_COMPARED}
        for state in desired
    ]
    return hashlib.sha256(json.dumps(states, sort_keys=True).encode()).hexdigest()
