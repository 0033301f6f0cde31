# SPDX-License-Identifier: Apache-2.0
"""Runs the program attachd in the process of a test, against a stand-in of a cloud."""

import contextlib
import dataclasses
import io
import logging
import os
from unittest import mock

from attachd.cli import app

SETTINGS = {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": "http://127.0.0.1:1/v3"}


@dataclasses.dataclass
class Done:
    code: int
    out: str
    err: str


class Cloud:
    """Stands in for clouds.Cloud once the options are known."""

    options = None

    def __init__(self, connection):
        self.sdk_connection = connection

    def close(self):
        pass


def run(*words, connection=None, settings=SETTINGS):
    """Run it as main() does; without a connection, with the real cloud that settings tell of."""
    out, err = io.StringIO(), io.StringIO()
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
        program.client_manager = Cloud(connection)
        return program.run(words)
    except SystemExit as ended:
        return ended.code or 0
