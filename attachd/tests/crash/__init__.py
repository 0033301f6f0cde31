# SPDX-License-Identifier: Apache-2.0
"""Kill API and manager at each step of each call, and check the result of the recovery.

fork_server.py
    loads API and manager and forks them; instrumentation.py adds points to what they do, and
    fixtures/crash_points.py counts the points and kills a process at one of them
deployment.py
    starts everything
calls.py, attachment_calls.py, volume_calls.py, legacy_calls.py
    the calls of a client
runner.py, case.py
    record the points of a call, and repeat it with a process that is killed at one of them
"""
