# SPDX-License-Identifier: Apache-2.0
"""What the tests of one process know of the cloud they run against; written by cloud.py."""

import dataclasses
import json
import os
from pathlib import Path

VARIABLE = "ATTACHD_TEST_CLOUD"
"""Names the file; set where ``python -m attachd.tests.consumers`` runs a suite."""


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Where it is, and who may use it.

    :ivar auth_url: of Keystone, with /v3
    :ivar endpoint: of attachd, with /v3
    :ivar project, user, password: an ordinary user
    :ivar service_user, service_password: who may speak for Nova and Ironic
    """

    auth_url: str
    endpoint: str
    project: str
    user: str
    password: str
    service_project: str
    service_user: str
    service_password: str

    def write(self, path: Path) -> None:
        """Leave it for the processes of the suites."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")


def read() -> Credentials:
    """Return what this process is to know."""
    return Credentials(**json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8")))
