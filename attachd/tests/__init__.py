# SPDX-License-Identifier: Apache-2.0
"""The tests of attachd; read by stestr."""

import logging
import os

from attachd import process_defaults

process_defaults.use_threads()

from futurist import _thread  # noqa: E402  after eventlet is hidden

# Seconds in which an idle thread of a pool notices that the pool has been ended; it is one by
# default, and each test that serves ends a pool.
_thread.ThreadWorker.MAX_IDLE_FOR = 0.05  # type: ignore[assignment]  # an int by default

# Tests of faults cause thousands of warnings, which Python prints while nothing handles them; the
# messages of the tests that fail are to be seen.
if not os.environ.get("ATTACHD_TEST_LOGS"):
    logging.getLogger().addHandler(logging.NullHandler())
