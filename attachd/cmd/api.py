# SPDX-License-Identifier: Apache-2.0
"""The API for a WSGI server; see :mod:`attachd.wsgi`.

Connections to the database and to the message queue are made by each process when it first needs
them, so the server may fork before or after the application is made.
"""

import sys

from oslo_log import log

from attachd import service
from attachd.api import app, uwsgi_requests
from attachd.conf import CONF
from attachd.db.engine import session
from attachd.db.secrets import encryption
from attachd.rpc import bulkheads
from attachd.telemetry import gmr

LOG = log.getLogger(__name__)


def make() -> app.Application:
    """Read the configuration and return the application."""
    uwsgi = uwsgi_requests.server()
    if uwsgi is not None:
        uwsgi_requests.duplicate_stderr()
    service.prepare([])
    gmr.setup("attachd-api")
    gmr.register_section("Database", session.pools)
    encryption.start()
    if CONF.api.auth_strategy == "noauth":
        LOG.warning("Authentication is off: any client that reaches this API may do everything.")
    service.warn_of_shared_virtual_host()
    made = app.make_app()
    if (server := sys.modules.get("uwsgi")) is not None:  # only inside uWSGI
        bulkheads.set_threads(server.cores)
    service.tune_garbage_collection()
    if uwsgi is None:
        return made
    uwsgi_requests.redact_log(uwsgi)
    return uwsgi_requests.CompleteRequests(made, uwsgi)
