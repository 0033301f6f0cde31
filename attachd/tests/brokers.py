# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts of a test's own on RabbitMQ, for every test that needs real messages.

    url = brokers.url(self)

The virtual host goes with everything in it when the test is over.
"""

from collections.abc import Callable
import subprocess
from typing import Any
import unittest
from urllib import parse
import uuid

from attachd.tests import machine

_ADD = (
    'V = <<"{name}">>, rabbit_vhost:add(V, <<"test">>), '
    "rabbit_auth_backend_internal:set_permissions("
    '<<"{user}">>, V, <<".*">>, <<".*">>, <<".*">>, <<"test">>).'
)


def url(test: unittest.TestCase, add_cleanup: Callable[..., Any] | None = None) -> str:
    """Return the URL of a new virtual host.

    :param add_cleanup: where to leave its removal, for one that several tests share
    """
    server = parse.urlsplit(machine.need_server(test, "rabbitmq"))
    machine.need_root(test)
    control = machine.need_tool(test, "rabbitmqctl")
    name = f"attachd_test_{uuid.uuid4().hex[:12]}"
    (add_cleanup or test.addCleanup)(_run, control, "delete_vhost", name)
    # One start of rabbitmqctl instead of two; each takes half a second.
    _run(control, "eval", _ADD.format(name=name, user=server.username))
    return parse.urlunsplit(server._replace(path=f"/{name}"))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
