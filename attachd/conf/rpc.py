# SPDX-License-Identifier: Apache-2.0
"""Options of RPC between the API and the managers; the [rpc] group, read by rpc and service."""

from oslo_config import cfg

GROUP = "rpc"

OPTIONS = [
    cfg.IntOpt(
        "attach_timeout",
        default=60,
        min=1,
        help="Seconds the API waits for a manager to connect or disconnect an attachment.",
    ),
    cfg.IntOpt(
        "max_calls",
        min=1,
        help="How many calls of one API process to managers and agents are in progress at the "
        "same time; further ones wait for their turn, projects one after the other, for at most "
        "three quarters of attach_timeout, which a call and its wait share. None: 30, or five "
        "eighths of the threads of the web server if it has few. At most seven eighths of the "
        "threads wait, and as much of these for one project; what comes then is refused.",
    ),
    cfg.IntOpt(
        "max_calls_per_backend",
        min=1,
        help="How many of them are for one backend, or the agent of one host; one that gets no "
        "turn in time is answered with a 503. None: two thirds of max_calls.",
    ),
    cfg.IntOpt(
        "max_calls_per_project",
        min=1,
        help="How many of them are of users of one project; one that gets no turn in time is "
        "answered with a 429. None: half of max_calls.",
    ),
    cfg.IntOpt(
        "max_calls_per_volume",
        min=1,
        help="How many of them are for one volume, which a manager processes one after the other, "
        "or with some drivers up to 16 at a time; one that gets no turn in time is answered with "
        "a 429. None: a third of max_calls.",
    ),
    cfg.IntOpt(
        "max_calls_unresponsive",
        default=8,
        min=1,
        help="How many calls of one API process wait at the same time for a backend that has not "
        "answered for 10 seconds; further calls get a 503 at once, so that threads remain for "
        "the other backends.",
    ),
]
