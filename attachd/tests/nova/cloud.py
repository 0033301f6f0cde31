# SPDX-License-Identifier: Apache-2.0
"""A cloud with Keystone, Placement, Glance and Nova, whose block storage is this attachd.

It comes from scripts beside the project, in the folder that LAB_NOVA_HOME names.  Two of its hosts
have a driver without guests, one has libvirt, guests, and a Ceph.  Its processes listen on
loopback; the virtual environments are kept in .cache/nova, and all else is removed when the test
process ends.
"""

from collections.abc import Mapping
import importlib.util
import os
from pathlib import Path
import re
import secrets
import socket
import subprocess
import sys
from types import ModuleType
from typing import Any, Final
import unittest

from attachd.tests.fixtures import lifetime, requirements
from attachd.tests.fixtures.processes import ROOT

VARIABLE: Final = "LAB_NOVA_HOME"

_VENVS: Final = ROOT / ".cache" / "nova"
_PORTS: Final = range(17000, 19000, 20)
"""Where a block of ten free ports is looked for."""
_BUILD_SECONDS: Final = 1800

_shared: dict[str, ModuleType] = {}


def shared(test: unittest.TestCase) -> Any:
    """Return the module cloud.py of the scripts, for the running cloud of this process.

    The test is skipped without the scripts, or fails if CI is set.
    """
    home = requirements.require_folder(test, VARIABLE, "a real Nova")
    if "cloud" not in _shared:
        for command in ("mariadbd", "rabbitmqctl", "tgtd", "libvirtd", "mcopy"):
            requirements.require_tool(test, command)
        requirements.require_system_module(test, "libvirt", "python3-libvirt")
        requirements.require_root(test)
        _shared["cloud"] = _start(lifetime.ProcessScope(test), home)
    return _shared["cloud"]


def _start(owner: lifetime.ProcessScope, home: Path) -> ModuleType:
    settings = {
        "ACCEPT_HOME": str(lifetime.temp_dir(owner)),
        "ACCEPT_VENV": str(_VENVS),
        "NR_PORT": str(_free_port()),
        "NR_NAME": f"nova{secrets.token_hex(4)}",
        "LAB": str(home.parent),
        # An option of attachd: the scripts configure it without images.
        "OS_GLANCE__AUTH_SECTION": "nova",
        # The scripts want the Python of the distribution, and commands beside this environment.
        "PATH": os.pathsep.join(["/usr/sbin", "/usr/bin", "/sbin", "/bin"]),
    }
    environment = {**os.environ, **settings}
    environment.pop("VIRTUAL_ENV", None)
    _install_this_code()
    owner.addCleanup(_run, home / "down.sh", env=environment)
    try:
        _run(home / "up.sh", ROOT, "libvirt", env=environment)
    except BaseException:  # The next test starts another one.
        _run(home / "down.sh", env=environment)
        raise
    _install_this_code()  # The first time the scripts have installed a copy of it.
    os.environ.update(_environment(home, environment))
    return _load(home / "cloud.py")


def _install_this_code() -> None:
    """Have the cloud's attachd be this source tree, with all that it needs now."""
    pip = _VENVS / "attachd" / "bin" / "pip"
    if (_VENVS / "attachd" / ".accept-ok").exists():
        _run(pip, "install", "--quiet", "--editable", ROOT)


def _free_port() -> int:
    for first in _PORTS:
        if all(_is_free(port) for port in range(first, first + 10)):
            return first
    raise AssertionError("there are no ten free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _run(*command: Any, **options: Any) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        timeout=_BUILD_SECONDS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    if done.returncode:
        raise AssertionError(f"{command[0]} returned {done.returncode}: {done.stdout[-4000:]}")


def _environment(home: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that the scripts set."""
    done = subprocess.run(
        ["bash", "-c", f". '{home}/env.sh' > /dev/null; env -0"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    return {name: value for name, value in found.items() if name not in {"PATH", "PWD", "_"}}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("attachd_lab_cloud", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.prepare(True)
    return module


def replace_options(text: str, options: Mapping[str, str]) -> str:
    """Return a configuration in which options that it has already have these values."""
    for name, value in options.items():
        text = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
    return text
