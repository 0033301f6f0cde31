# SPDX-License-Identifier: Apache-2.0
"""A MariaDB and a RabbitMQ that a soak can kill.

Each has a directory of its own, listens on 127.0.0.1, and ends with the thread that started it.
Its stored data survives a kill.
"""

import getpass
from pathlib import Path
import shutil
import socket
import subprocess
import unittest

import sqlalchemy as sa

from attachd.tests.fixtures import lifetime, processes, requirements
from attachd.tests.wait import TIMEOUT, wait_until


def bound(test: unittest.TestCase) -> list[str]:
    """Return how a command line begins whose process dies with the thread that starts it."""
    return [requirements.require_tool(test, "setpriv"), "--pdeathsig=KILL", "--"]


def listens(port: int) -> bool:
    """Return whether a server accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


class Server:
    """A server that can be killed and restarted with its stored data.

    :cvar says: what it writes when it is ready
    """

    says = ""

    def __init__(self, test: unittest.TestCase) -> None:
        self.test = test
        self.folder = lifetime.temp_dir(test)
        self._process: processes.Process | None = None

    def start(self) -> None:
        """Start it, and do not wait for it."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Return whether it is up again."""
        return self.says in self.output

    def wait(self) -> None:
        """Wait until it is ready."""
        assert self._process is not None
        self._process.wait_for(self.says)

    def kill(self) -> None:
        """Send SIGKILL to all of it."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def output(self) -> str:
        """What it has written since it was started last."""
        return self._process.output if self._process else ""

    def _run(self, *command: str, env: dict[str, str] | None = None) -> None:
        self._process = processes.Process(self.test, *bound(self.test), *command, env=env)


class MariaDb(Server):
    """A database server with one empty database.

    :ivar url: of the database
    """

    says = "ready for connections"

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__(test)
        self._port = processes.free_port()
        self._server = requirements.require_tool(test, "mariadbd")
        server = f"mysql+pymysql://root@127.0.0.1:{self._port}/"
        self.url = f"{server}attachd"
        subprocess.run(
            [
                requirements.require_tool(test, "mariadb-install-db"),
                "--no-defaults",
                f"--datadir={self._data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
                *self._user(),
            ],
            check=True,
            capture_output=True,
            timeout=TIMEOUT,
        )
        self.start()
        self.wait()
        engine = sa.create_engine(server, poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE DATABASE attachd CHARACTER SET utf8mb4")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @staticmethod
    def _user() -> list[str]:
        return [f"--user={getpass.getuser()}"]

    def start(self) -> None:
        """Start it: what was committed is there again."""
        self._run(
            self._server,
            "--no-defaults",
            f"--datadir={self._data}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self._port}",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=64M",
            # Processes are killed here, not machines: what the kernel has is safe.
            "--innodb-flush-log-at-trx-commit=2",
            *self._user(),
        )


class RabbitMq(Server):
    """A node with the user guest, on the virtual host /, and an epmd of its own.

    :ivar url: of the virtual host
    """

    says = "Server startup complete"

    def __init__(self, test: unittest.TestCase) -> None:
        super().__init__(test)
        # The wrapper that Debian puts on the path becomes another user.
        beside = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        self._server = (
            f"{beside}" if beside.exists() else requirements.require_tool(test, beside.name)
        )
        ports = (processes.free_port() for _ in range(3))
        self._port, self._distribution, self._names = ports
        self.url = f"rabbit://guest:guest@127.0.0.1:{self._port}/"
        epmd = [shutil.which("epmd") or requirements.require_tool(test, "epmd")]
        epmd += ["-address", "127.0.0.1", "-port", f"{self._names}"]
        processes.Process(test, *bound(test), *epmd, env=self._environment())
        wait_until(lambda: listens(self._names))
        self.start()
        self.wait()

    def _environment(self) -> dict[str, str]:
        return processes.environment(
            # Where Erlang makes the cookie.
            HOME=f"{self.folder}",
            ERL_EPMD_PORT=f"{self._names}",
            ERL_EPMD_ADDRESS="127.0.0.1",
            RABBITMQ_NODENAME=f"soak{self._port}@localhost",
            RABBITMQ_NODE_IP_ADDRESS="127.0.0.1",
            RABBITMQ_NODE_PORT=f"{self._port}",
            RABBITMQ_DIST_PORT=f"{self._distribution}",
            RABBITMQ_MNESIA_BASE=f"{self.folder / 'mnesia'}",
            RABBITMQ_LOG_BASE=f"{self.folder / 'log'}",
            RABBITMQ_LOGS="-",
            RABBITMQ_ENABLED_PLUGINS_FILE=f"{self.folder / 'plugins'}",
            RABBITMQ_CONFIG_FILE=f"{self.folder / 'no-configuration'}",
            RABBITMQ_CONF_ENV_FILE="/dev/null",
            # Threads that wait for work must not spin: all processes share few processors.
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none",
            # The server takes the place of its script, so that a signal reaches it.
            RABBITMQ_ALLOW_INPUT="1",
        )

    def start(self) -> None:
        """Start it: durable queues are there again."""
        self._run(self._server, "-noinput", env=self._environment())
