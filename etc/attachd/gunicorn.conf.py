# SPDX-License-Identifier: Apache-2.0
"""The API of attachd under gunicorn: ``gunicorn -c gunicorn.conf.py``.

It reads attachd.conf of the default directories; ATTACHD_CONFIG_FILES names other files.
"""

from typing import Any

wsgi_app = "attachd.wsgi:application"
bind = "127.0.0.1:8776"

workers = 2
# The only kind of worker that keeps connections open while its threads serve others.
worker_class = "gthread"
# Requests of a burst wait in them for managers, most of them for their turn.
threads = 1024
# Idle connections are among them.
worker_connections = 4096
# Each worker loads the API for itself: connections do not survive a fork.
preload_app = False

# Seconds that an idle connection stays open.  Longer than clients and proxies keep theirs: if the
# server closed it, a request that is just being sent would be lost.
keepalive = 75
# Longer than a manager may take to connect ([rpc]attach_timeout), also after SIGTERM.
timeout = 90
graceful_timeout = 70

# Nothing controls the running server, so it needs no control socket.
control_socket_disable = True


def post_worker_init(worker: Any) -> None:
    """Limit waiting calls by the number of threads."""
    try:
        from attachd.rpc import bulkheads  # noqa: PLC0415  only the workers load the application
    except ImportError:  # the configuration was upgraded before the code
        return
    bulkheads.set_threads(worker.cfg.threads)
