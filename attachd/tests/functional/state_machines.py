# SPDX-License-Identifier: Apache-2.0
"""Run state machines of Hypothesis against one API and one manager."""

import logging
import os
from typing import Any
import unittest

import hypothesis
from hypothesis import stateful

from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.tests.fixtures import db_rows, wsgi_api

_MANY = os.environ.get("ATTACHD_TEST_EXAMPLES")
"""How many machines to run; where it is not set, they are few and always the same."""
_EXAMPLES = int(_MANY or 20)


def start_api(test: unittest.TestCase) -> wsgi_api.WsgiApi:
    """Start an API without logs, since failures are expected."""
    logging.disable(logging.CRITICAL)
    test.addCleanup(logging.disable, logging.NOTSET)
    return wsgi_api.use(test)


def reset(api: wsgi_api.WsgiApi) -> None:
    """Forget what the story before has left; its backend counts as alive again."""
    api.backend.driver.clear()
    db_rows.remove_all()
    BackendHeartbeat(api.backend).run_once()


def run(make_machine: Any, steps: int, divisor: int = 1) -> None:
    """Run machines with random calls, always the same ones unless ATTACHD_TEST_EXAMPLES is set.

    :param make_machine: returns a new machine
    :param steps: calls of one machine, at most
    :param divisor: how many times fewer machines there are than otherwise
    """
    stateful.run_state_machine_as_test(
        make_machine,
        settings=hypothesis.settings(
            max_examples=max(_EXAMPLES // divisor, 1),
            derandomize=not _MANY,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
