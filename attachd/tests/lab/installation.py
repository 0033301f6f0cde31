# SPDX-License-Identifier: Apache-2.0
"""attachd in a guest: the wheel of this tree, in a virtual environment.

What the wheel needs is not built or compiled in the guest, which is slow: a tar of what is
installed here, for the same Python, is unpacked there.  Guests fetch both over HTTP, which costs
them less than ssh.
"""

from collections.abc import Callable, Iterator
from email.message import Message
from importlib import metadata
from pathlib import Path
import shutil
import subprocess
import sys
import tarfile
import tempfile
from typing import Any
import unittest
import zipfile

from packaging import requirements

from attachd.tests.fixtures import processes
from attachd.tests.lab import file_server, guests

FOLDER = "/opt/attachd"
"""The virtual environment in the guest."""

EXTRA = "host"
"""What is installed of the wheel's extras."""

_PYTHON = (3, 11)
_PARTS = ("attachd", "setup.cfg", "pyproject.toml", "README.rst", "LICENSE", "MANIFEST.in")
_TAR = "needed.tar"

# The pip of os-brick's environment works for any other one; a pip of its own would take longer
# to make than all the rest.
# What it needs is there, and to have it looked for would take that pip a minute.
_INSTALL = """\
set -e
python3 -m venv --without-pip {folder}
busybox wget -q -O - {url}/{tar} | tar x -C {folder}/lib/python3.11/site-packages
busybox wget -q -O /tmp/{wheel} {url}/{wheel}
/opt/brick/bin/pip --python {folder}/bin/python install --quiet --no-deps --no-index --no-compile \
    /tmp/{wheel}
rm /tmp/{wheel}
"""


class Parcel:
    """A wheel of this tree, with all that it needs at a host, for guests to fetch.

    :param add_cleanup: as TestCase.addClassCleanup()
    """

    def __init__(self, add_cleanup: Callable[..., Any]) -> None:
        if sys.version_info[:2] != _PYTHON:
            raise unittest.SkipTest(f"the guests have Python {_PYTHON}, for which this is not")
        folder = tempfile.TemporaryDirectory(prefix="attachd-test-")
        add_cleanup(folder.cleanup)
        self._folder = Path(folder.name)
        self._wheel = _build(self._folder)
        _pack(self._folder / _TAR, _needed(self._wheel))
        self._url = file_server.start(add_cleanup, self._folder)

    def install(self, guest: guests.Guest) -> None:
        """Install it in a guest."""
        names = {"tar": _TAR, "wheel": self._wheel.name}
        guest.run(_INSTALL.format(folder=FOLDER, url=self._url, **names))


def _build(folder: Path) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    for part in _PARTS:
        source = processes.ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree)
    # Within our own environment, which has the tools: nothing is fetched from anywhere.
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*line, "--wheel-dir", folder, tree], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _needed(wheel: Path) -> list[metadata.Distribution]:
    """Find what a wheel needs, directly or not, among what is installed here."""
    waiting = list(_requirements(_metadata(wheel).get_all("Requires-Dist") or [], {EXTRA}))
    seen: dict[tuple[str, frozenset[str]], metadata.Distribution] = {}
    while waiting:
        wanted = waiting.pop()
        key = (wanted.name, frozenset(wanted.extras))
        if key not in seen:
            seen[key] = found = metadata.distribution(wanted.name)
            waiting += _requirements(found.requires or [], wanted.extras)
    return list({item.name: item for item in seen.values()}.values())


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        message = Message()
        for line in archive.read(name).decode().split("\n\n")[0].splitlines():
            key, colon, value = line.partition(": ")
            if colon:
                message[key] = value
        return message


def _requirements(lines: list[str], extras: set[str]) -> Iterator[requirements.Requirement]:
    for line in lines:
        wanted = requirements.Requirement(line)
        marker = wanted.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield wanted


def _pack(path: Path, distributions: list[metadata.Distribution]) -> None:
    """Pack what is imported, with its compiled form, and leave commands and tests behind."""
    with tarfile.open(path, "w") as tar:
        for distribution in distributions:
            for file in distribution.files or ():
                source = Path(str(distribution.locate_file(file)))
                if not {"..", "tests"} & set(file.parts) and source.exists():
                    tar.add(source, str(file))
