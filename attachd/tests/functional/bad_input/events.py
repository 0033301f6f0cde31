# SPDX-License-Identifier: Apache-2.0
"""Bad requests for events."""

from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional.bad_input import Row

MEMBER = {"token": wsgi_api.MEMBER, "version": f"{wsgi_api.LATEST}, attachd 1.0"}
NOBODY = "/attachments/11111111-2222-4333-8444-555555555555/timeline"


def _wrong(claim: str, query: str, says: str, status: int = 400) -> Row:
    return Row(f"events: {claim}", "GET", f"/events?{query}", None, status, says, MEMBER)


ROWS = [
    Row("events: not asked for", "GET", "/events", None, 404, "not supported"),
    Row("timeline: not asked for", "GET", NOBODY, None, 404, "not supported"),
    Row("timeline: unknown", "GET", NOBODY, None, 404, "could not be found", MEMBER),
    Row("timeline: no id", "GET", "/attachments/x/timeline", None, 404, "not be found", MEMBER),
    _wrong("since a word", "since=yesterday", "since"),
    _wrong("since nothing", "since=", "since"),
    _wrong("since before all", "since=-1", "since"),
    _wrong("since too large a number", f"since={'9' * 40}", "since"),
    _wrong("since the future", f"since={2**63 - 1}", "not known any more", 410),
    _wrong("wait for a day", "wait=86400", "wait"),
    _wrong("wait for half a second", "wait=0.5", "wait"),
    _wrong("none at all", "limit=0", "limit"),
    _wrong("too many", "limit=1001", "limit"),
    _wrong("by what it has not", "colour=red", "colour"),
    _wrong("a control character", "volume_id=%00", "control characters"),
    _wrong("no UTF-8", "volume_id=%ff", "UTF-8"),
]
