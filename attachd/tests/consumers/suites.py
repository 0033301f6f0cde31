# SPDX-License-Identifier: Apache-2.0
"""Which suites there are, which of their tests are run, and running them; for __main__.py."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import importlib.util
import io
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile
from typing import IO, Any

import subunit
import testtools
import yaml

LEFT_OUT = Path(__file__).with_name("left-out.yaml")
TIME_LIMIT = 1500
"""Seconds for one suite."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tests that a package brings along.

    :ivar folders: packages of tests
    :ivar wanted: the ids of tests that are about block storage
    """

    name: str
    folders: tuple[str, ...]
    wanted: str = "."


SUITES = (
    Suite("tempest", ("tempest.api.volume", "cinder_tempest_plugin")),
    Suite(
        "sdk",
        ("openstack.tests.functional.block_storage.v3", "openstack.tests.functional.cloud"),
        r"\.block_storage\.|\.cloud\.test_block_storage\.",
    ),
    Suite("openstackclient", ("openstackclient.tests.functional.volume.v3",)),
    Suite("cinderclient", ("cinderclient.tests.functional",)),
    Suite("nova", ("attachd.tests.consumers.nova",)),
    Suite("ironic", ("attachd.tests.consumers.ironic",)),
)


class Reasons:
    """Why tests are left out, from left-out.yaml."""

    def __init__(self, suite: str) -> None:
        entries = yaml.safe_load(LEFT_OUT.read_text(encoding="utf-8")).get(suite) or []
        self._entries = [
            # Spaces come from lines that are folded.
            (re.compile(entry["tests"].replace(" ", "")), entry["reason"])
            for entry in entries
        ]
        self.counts: dict[str, int] = {reason: 0 for _, reason in self._entries}

    def why(self, test: str) -> str | None:
        """Return the reason for which a test is left out, or None."""
        for pattern, reason in self._entries:
            if pattern.search(test):
                self.counts[reason] += 1
                return reason
        return None


def choose(suite: Suite, environment: Mapping[str, str], regex: str) -> tuple[list[str], Reasons]:
    """List a suite's tests that are to be run."""
    reasons = Reasons(suite.name)
    found = [
        test
        for folder in suite.folders
        for test in _listed(folder, environment)
        if re.search(suite.wanted, test)
    ]
    chosen = [test for test in found if reasons.why(test) is None]
    return [test for test in chosen if re.search(regex, test)], reasons


def run(
    suite: Suite, tests: Sequence[str], environment: Mapping[str, str], out: IO[bytes]
) -> None:
    """Run tests, whose results go to ``out`` as subunit, and their other output to our stderr."""
    for folder in suite.folders:
        top, start = _place(folder)
        attachments = [test for test in tests if test.partition("(")[0].startswith(folder)]
        attachments += [test for test in tests if f"({folder}" in test]
        if not attachments:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".tests") as listed:
            listed.write("\n".join(attachments) + "\n")
            listed.flush()
            _run(top, start, environment, "--load-list", listed.name, stdout=out)


def _listed(folder: str, environment: Mapping[str, str]) -> Iterable[str]:
    top, start = _place(folder)
    done = _run(top, start, environment, "--list", capture_output=True)
    names: list[str] = []

    stream = testtools.StreamToDict(lambda test: names.append(test["id"]))
    stream.startTestRun()
    subunit.ByteStreamToStreamResult(io.BytesIO(done.stdout), "not subunit").run(stream)
    stream.stopTestRun()
    if not names or any("FailedTest" in name for name in names):
        text = done.stderr.decode(errors="replace")[-5000:]
        raise RuntimeError(f"the tests of {folder} cannot be listed: {names[:5]}\n{text}")
    return sorted(names)


def _place(folder: str) -> tuple[Path, Path]:
    """Return the folder that the package's name starts from, and its own."""
    found = importlib.util.find_spec(folder)
    if found is None or not found.submodule_search_locations:
        raise RuntimeError(f"{folder} is not installed: pip install '.[test,consumers]'")
    start = Path(found.submodule_search_locations[0])
    return start.parents[folder.count(".")], start


def _run(
    top: Path, start: Path, environment: Mapping[str, str], *arguments: str, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "stestr.subunit_runner.run", "discover"]
    return subprocess.run(
        [*command, "-t", str(top), str(start), *arguments],
        env={**os.environ, **environment},
        cwd=top,
        timeout=TIME_LIMIT,
        check=False,
        **options,
    )
