# SPDX-License-Identifier: Apache-2.0
"""Effects of importing attachd, in processes of their own."""

from importlib import metadata
import json
import pkgutil
import subprocess
import sys
import unittest

import attachd.client
import attachd.drivers
from attachd.tests.wait import TIMEOUT

# Imports each module that it reads in a child process of its own, and prints what has changed.
_IMPORT = """
import importlib, json, logging, os, sys, threading, warnings
import cliff, openstack.connection  # once: they take the most time, and change nothing either

def state():
    root = logging.getLogger()
    return {
        "blocked modules": sorted(name for name, module in sys.modules.items() if module is None),
        "eventlet": "eventlet" in sys.modules,
        "oslo.service's backend": "oslo_service" in sys.modules,
        "excepthook": sys.excepthook is sys.__excepthook__,
        "threading.excepthook": threading.excepthook is threading.__excepthook__,
        "warnings": warnings.showwarning is shown,
        "threads": threading.active_count(),
        "root logger": [root.level, len(root.handlers), len(root.filters)],
        "levels": sorted(
            name for name, logger in logging.Logger.manager.loggerDict.items()
            if name.startswith("attachd") and isinstance(logger, logging.Logger)
            and (logger.level or logger.handlers or not logger.propagate)
        ),
    }

shown = warnings.showwarning
before = state()
for module in sys.argv[1:]:
    if not (child := os.fork()):
        code = 1
        try:
            importlib.import_module(module)
            after = state()
            changed = [key for key in before if before[key] != after[key]]
            print(json.dumps([module, changed]), flush=True)
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        print(json.dumps([module, ["its import fails"]]), flush=True)
"""


def run_code(code: str, *arguments: str) -> str:
    """Run ``code`` in a new process, before any import."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    ).stdout.strip()


def _public_modules() -> list[str]:
    """Return what programs of others import: client, plug-ins, modules for drivers."""
    plugins = {
        entry.module
        for group in ("attachd.cli", "openstack.volume.v3")
        for entry in metadata.entry_points(group=group)
        if entry.module.startswith("attachd.")
    }
    client = {
        module.name for module in pkgutil.walk_packages(attachd.client.__path__, "attachd.client.")
    }
    drivers = {
        f"attachd.drivers.{module.name}"
        for module in pkgutil.iter_modules(attachd.drivers.__path__)
        if not module.ispkg
    }
    others = {"attachd", "attachd.client", "attachd.exception", "attachd.states"}
    return sorted(plugins | client | drivers | others)


class PackageTest(unittest.TestCase):
    def test_import_of_public_modules_changes_nothing(self):
        modules = _public_modules()
        self.assertGreater(len(modules), 25)
        lines = run_code(_IMPORT, *modules).splitlines()
        self.assertEqual(
            [[module, []] for module in modules], [json.loads(line) for line in lines]
        )
