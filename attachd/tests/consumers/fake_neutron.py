# SPDX-License-Identifier: Apache-2.0
"""A fake Network service that has nothing, started by cloud.py.

Tempest does not run some classes of its volume tests where there is no Network service, although
they never use one; where there is one, it removes the security groups of each project at the
end.  Neutron itself needs networks of the machine's own, so this answers that there are none.
The Image service, which Tempest is configured with for the same reason, is never asked.
"""

from http import server
import json
import threading
import unittest


class _Nothing(server.BaseHTTPRequestHandler):
    """Answers each list with an empty one."""

    def do_GET(self) -> None:
        """Answer one list."""
        noun = self.path.partition("?")[0].rpartition("/")[2].replace("-", "_")
        body = json.dumps({noun: []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_message: object) -> None:
        """Log nothing."""


def start(test: unittest.TestCase) -> str:
    """Serve until the test's clean-ups; returns the URL."""
    serving = server.ThreadingHTTPServer(("127.0.0.1", 0), _Nothing)
    test.addCleanup(serving.server_close)
    test.addCleanup(serving.shutdown)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{serving.server_port}"
