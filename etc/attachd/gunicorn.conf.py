# SPDX-License-Identifier: Apache-2.0
"""The API of attachd under gunicorn: ``gunicorn -c gunicorn.conf.py``.

attachd.conf is looked for in the usual places; ATTACHD_CONFIG_FILES names others.
"""

wsgi_app = "attachd.wsgi:application"
bind = "127.0.0.1:8776"

workers = 2
# The only kind of worker that keeps connections open while its threads serve others.
worker_class = "gthread"
threads = 16
# Each worker loads the API for itself: connections do not survive a fork.
preload_app = False

# Seconds an idle connection stays open.  Longer than clients and proxies keep theirs, so that
# it is they who close it, never the server just when the next request is on its way.
keepalive = 75
# Longer than a manager may take to connect ([rpc]attach_timeout), also after SIGTERM.
timeout = 90
graceful_timeout = 70

# Nothing controls the running server, so it needs no socket in somebody's home.
control_socket_disable = True
