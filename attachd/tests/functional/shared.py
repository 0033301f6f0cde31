# SPDX-License-Identifier: Apache-2.0
"""attachd-all-in-one for the tests of one process, which each find it empty.

A start takes longer than most tests with a client.  So the tests of a process that want the same
configuration share one, and what a test leaves in it is removed when the test is over::

    self.process = shared.all_in_one(self, "[api]\\nmax_limit = 2\\n")

A test that reconfigures, stops or breaks it needs one of its own: processes.AllInOne.
"""

import functools
from typing import Any
import unittest

from attachd.tests import wait
from attachd.tests.functional import callers, processes
from attachd.tests.lasting import Lasting

PLAIN = """
[file]
# A loop device would outlive a test that fails.
file_loop_devices = never
"""

_running: dict[str, processes.AllInOne] = {}
"""By configuration."""


def all_in_one(test: unittest.TestCase, configuration: str = "") -> processes.AllInOne:
    """Return the all-in-one of this test process which has some configuration, and no volume.

    :param configuration: what to add to PLAIN
    """
    if configuration not in _running:
        lasting = Lasting(test)
        folder = processes.folder(lasting)
        file = folder / "attachd.conf"
        file.write_text(PLAIN + configuration)
        _running[configuration] = processes.AllInOne(
            lasting, folder / "state", f"--config-file={file}"
        )
    test.addCleanup(_clean, configuration)
    return _running[configuration]


def _clean(configuration: str) -> None:
    """Remove what a test has left; after a failure the next test gets a new all-in-one."""
    served = _running.pop(configuration)
    try:
        _empty(callers.Caller(f"{served.url}/v3"))
    except BaseException:
        served.kill()
        raise
    _running[configuration] = served


def _empty(api: callers.Caller) -> None:
    _enable_services(api)
    for attachment in _list(api, "attachments", "all_tenants=1"):
        api.get("DELETE", f"/attachments/{attachment['id']}")
    wait.wait_until(functools.partial(_delete_volumes, api), "volumes are gone")
    for default in api.get("GET", "/default-types")["default_types"]:
        api.get("DELETE", f"/default-types/{default['project_id']}")
    for kind in _list(api, "types", "is_public=None"):
        if kind["name"] != "__DEFAULT__":
            api.get("DELETE", f"/types/{kind['id']}")
    for specs in _list(api, "qos-specs"):
        api.get("DELETE", f"/qos-specs/{specs['id']}?force=True")


def _delete_volumes(api: callers.Caller) -> bool:
    """Delete the volumes of the first page; return whether there were none.

    What a test has deleted may be gone at any moment, also as the marker of a page.
    """
    page = _first_page(api, "volumes/detail", "all_tenants=1")
    for volume in page:
        if volume["status"] != "deleting":
            api.ask("POST", f"/volumes/{volume['id']}/action", {"os-force_delete": {}})
    return not page


def _enable_services(api: callers.Caller) -> None:
    for service in api.get("GET", "/os-services")["services"]:
        if service["status"] != "enabled":
            place = {"host": service["host"]}
            api.get("PUT", "/os-services/enable", {"binary": service["binary"], **place})
            api.get("PUT", "/os-services/thaw", place)


_KEYS = {"volumes/detail": "volumes", "types": "volume_types", "qos-specs": "qos_specs"}


def _list(api: callers.Caller, noun: str, query: str = "") -> list[Any]:
    """Return all items, of however many pages."""
    items = page = _first_page(api, noun, query)
    while page:
        page = _first_page(api, noun, f"{query}&marker={page[-1]['id']}")
        items = [*items, *page]
    return items


def _first_page(api: callers.Caller, noun: str, query: str) -> list[Any]:
    return list(api.get("GET", f"/{noun}?{query}")[_KEYS.get(noun, noun)])
