# SPDX-License-Identifier: Apache-2.0
"""Runs the program attachd in the process of a test, against a stand-in of a cloud."""

import contextlib
import copy
import dataclasses
import io
import json
import logging
import os
import types
from typing import Any
import unittest
from unittest import mock

import requests

from attachd.cli import app

SETTINGS = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "http://127.0.0.1:1/v3"}


@dataclasses.dataclass
class Done:
    code: int
    out: str
    err: str


class Manager:
    """Stands in for clouds.Cloud once the options are known."""

    options = None

    def __init__(self, connection):
        self.sdk_connection = connection

    def close(self):
        pass


class Terminal(io.StringIO):
    """A terminal; os.get_terminal_size() has to be patched."""

    def isatty(self):
        return True

    def fileno(self):
        return 1


def run(*words, connection=None, settings=SETTINGS, out=None):
    """Run it as main() does; without a connection, with the cloud of the settings.

    :param out: its standard output; None: a pipe
    """
    out, err = out or io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    try:
        with (
            mock.patch.dict(os.environ, {**kept, **settings}, clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = _run(list(words), connection)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return Done(code, out.getvalue(), err.getvalue())


def _run(words, connection):
    try:
        if connection is None:
            with mock.patch("sys.argv", ["attachd", *words]):
                return app.main()
        program = app.Attachd(words)
        program.client_manager = Manager(connection)
        return program.run(words)
    except SystemExit as ended:
        return ended.code or 0


INFO = {
    "access_mode": "rw",
    "auth_method": "CHAP",
    "auth_password": "kystSioDKHSV2j9y",
    "driver_volume_type": "iscsi",
    "qos_specs": None,
    "target_luns": [0, 1],
}
ONE = {
    "id": "a1",
    "volume_id": "id of data",
    "instance": None,
    "status": "attaching",
    "attach_mode": "rw",
    "attached_at": "2026-01-01T00:00:00.000000",
    "connection_info": INFO,
}
DRY_RUN = {
    "possible": False,
    "attach_mode": None,
    "reasons": [{"code": 400, "message": "It is held."}],
    "holders": [{"id": "a1"}],
}
QUOTAS = {"attachments": {"limit": 7, "in_use": 2, "reserved": 0}}
AGENT: dict[str, Any] = {
    "host": "node1",
    "state": "up",
    "last_seen": "2026-01-01T00:00:00.000000",
    "connector_type": "kernel",
    "version": "1.0",
    "error": None,
    "connector": {"host": "node1", "initiator": "iqn.2026-01.example:1"},
    "devices": [],
}


HOST: dict[str, Any] = {
    "host": "h",
    "fenced": True,
    "generation": 1,
    "fenced_at": "2026-01-01T00:00:00.000000",
    "reason": "dead",
    "user_id": "u",
    "agent_state": None,
    "attachment_ids": ["a1"],
    "drain": None,
}
FENCED: dict[str, Any] = {
    "attachment_id": "a1",
    "volume_id": "v1",
    "instance_uuid": None,
    "proof": None,
}


class Cloud:
    """Stands in for a connection; answers each request by its method and path."""

    def __init__(self):
        self.block_storage = self
        self.asked = []
        self.missing = set()
        self.refusals = []
        self.one = ONE
        self.listed = [ONE]
        self.fenced = []
        self.drains = [None]
        self.results = []

    def find_volume(self, name, ignore_missing=True, all_projects=False):
        if self.refusals:
            raise self.refusals.pop()
        return types.SimpleNamespace(id=f"id of {name}{' anywhere' if all_projects else ''}")

    def request(self, url, method, raise_exc=True, **request):
        self.asked.append((method, url, copy.deepcopy(request)))
        if url in self.missing:
            return self.response(method, url, 404, {"itemNotFound": {"message": "it is gone"}})
        return self.response(method, url, 200, self.body(method, url, request))

    @staticmethod
    def response(method, url, status, body):
        response = requests.Response()
        response.headers["Content-Type"] = "application/json"
        response.request = requests.Request(method, f"http://127.0.0.1{url}").prepare()
        response.status_code = status
        response._content = json.dumps(body).encode()
        return response

    def body(self, method, url, request):
        if url in {"/attachments", "/attachments/detail"} and method == "GET":
            is_last_page = "marker" in request["params"] and "limit" not in request["params"]
            return {"attachments": [] if is_last_page else self.listed}
        if "dry_run" in request.get("params", {}):
            return {"dry_run": DRY_RUN}
        if url == "/attachments/action":
            return {"results": self.results}
        if url.startswith("/hosts"):
            fence = {"host": HOST, "attachments": self.fenced}
            host = {**HOST, "drain": self.drains.pop(0) if self.drains[1:] else self.drains[0]}
            return {"hosts": [host], "host": host, "fence": fence}
        if url.startswith("/agents"):
            return {"agents": [AGENT], "agent": AGENT}
        return {"attachment": self.one, "quota_set": QUOTAS}


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.cloud = Cloud()

    def run_it(self, *words, code=0):
        done = run(*words, connection=self.cloud)
        self.assertEqual(code, done.code, done.err)
        self.said = done.err
        return done.out

    def run_in_terminal(self, width, *words, code=0, **settings):
        """Run it with a standard output that is a terminal; return what it shows."""
        size = os.terminal_size((width, 24))
        with mock.patch.object(os, "get_terminal_size", lambda *_: size):
            values = {**SETTINGS, "TERM": "xterm", "NO_COLOR": "", **settings}
            done = run(*words, connection=self.cloud, settings=values, out=Terminal())
        self.assertEqual(code, done.code, done.err)
        self.said = done.err
        return done.out

    def sent(self):
        _method, _url, request = self.cloud.asked[-1]
        return request["json"]["attachment"]
