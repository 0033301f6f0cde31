# SPDX-License-Identifier: Apache-2.0
"""The API of attachd under gunicorn: ``gunicorn -c gunicorn.conf.py``.

It reads attachd.conf of the default directories; ATTACHD_CONFIG_FILES names other files.
"""

wsgi_app = "attachd.wsgi:application"
bind = "127.0.0.1:8776"

workers = 2
# The only kind of worker that keeps connections open while its threads serve others.
worker_class = "gthread"
threads = 16
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
