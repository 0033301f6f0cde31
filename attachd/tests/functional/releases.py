# SPDX-License-Identifier: Apache-2.0
"""A former release of this code, for tests of what runs beside it during an upgrade."""

from pathlib import Path
import subprocess
import unittest

from attachd.tests import machine
from attachd.tests.functional import processes

FORMER = "a26c6adba68bdfc4a39dc0a235c4c8a6718d9247"
"""A commit: RPC contract 1.3, objects of version 1.1, and managers that do not tell either."""
FORMER_CONTRACT = "1.3"


def former(test: unittest.TestCase) -> Path:
    """Return the source tree of the former release, as its commit has it."""
    machine.need_commit(test, processes.ROOT, FORMER)
    top = processes.folder(test)
    git = ["git", "-C", str(processes.ROOT), "-c", f"safe.directory={processes.ROOT}"]
    archive = subprocess.run(
        [*git, "archive", FORMER, "attachd"], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(top)], input=archive, check=True)
    return top
