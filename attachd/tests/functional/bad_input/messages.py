# SPDX-License-Identifier: Apache-2.0
"""Bad requests for user messages."""

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

READER = {"token": wsgi_api.READER}

ROWS = [
    Row("show: unknown", "GET", "/messages/{unknown}", None, 404, "Message {unknown} could not"),
    Row("show: no id at all", "GET", "/messages/x", None, 404, "Message x could not"),
    Row("delete: unknown", "DELETE", "/messages/{unknown}", None, 404, "Message {unknown}"),
    Row("delete: a reader", "DELETE", "/messages/{unknown}", None, 403, "message:delete", READER),
    Row("list: a limit of words", "GET", "/messages?limit=many", None, 400, "limit must be"),
    Row("list: a negative limit", "GET", "/messages?limit=-1", None, 400, "limit must be"),
    Row("list: an unknown marker", "GET", "/messages?marker={unknown}", None, 404, "{unknown}"),
    Row("list: an unknown order", "GET", "/messages?sort=colour", None, 400, "'colour'"),
    Row("list: an unknown filter", "GET", "/messages?colour=red", None, 400, "filters colour"),
]
