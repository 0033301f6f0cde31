# SPDX-License-Identifier: Apache-2.0
"""Private processes of attachd to be measured, and how the benchmarks end that start them.

They use a directory of their own, listen on a free port of 127.0.0.1 and end with the
benchmark.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
from dataclasses import dataclass, field
import json
import os
from pathlib import Path
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from cycle import load, wire

TIMEOUT = 60.0
"""Seconds that the processes may take to begin, and then to end."""

UWSGI = Path(__file__).parents[2] / "etc" / "attachd" / "uwsgi.ini"

ALL_IN_ONE = """\
[DEFAULT]
enabled_backends = measured

[measured]
driver = {driver}
file_folder = {folder}
file_hosts = *
"""

PRODUCTION = """\
[DEFAULT]
host = benchmark
state_path = {folder}
transport_url = {rabbit}
enabled_backends = {names}
log_file = {folder}/%s.log

[database]
connection = {database}

[manager]
workers = {manager_workers}

[quota]
quota_volumes = -1
quota_gigabytes = -1

[api]
auth_strategy = noauth

{backends}"""

Backends = Mapping[str, Mapping[str, str]]
"""Options of each backend, by its name."""


class NotStarted(Exception):
    """Why there is nothing to be measured; with what the process said."""


@dataclass(frozen=True)
class Shape:
    """What production is made of.

    :ivar api_threads: of each process; 0: as many as in etc/attachd/uwsgi.ini
    :ivar groups: other groups of the configuration, with their options
    """

    database: str
    rabbit: str
    api_processes: int
    api_threads: int
    manager_workers: int
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass
class Running:
    """What was started.

    :ivar endpoint: the base of the API's URLs
    :ivar pids: the processes to be measured, by name
    :ivar counter: the socket of counted.py, if that runs
    """

    endpoint: str = ""
    pids: dict[str, int] = field(default_factory=dict)
    counter: Path | None = None


@contextlib.contextmanager
def exiting_on_errors() -> Iterator[None]:
    """Exit with code 2 if the block can measure nothing, and end its processes on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    except (load.Unusable, NotStarted, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)


@contextlib.contextmanager
def work_folder(kept: Path | None = None) -> Iterator[Path]:
    """Create the folder, or a temporary one."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="attachd-") as name:
            yield Path(name)
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept


@contextlib.contextmanager
def all_in_one(folder: Path, driver: str, *, functions: bool = False) -> Iterator[Running]:
    """Run attachd-all-in-one.

    :param functions: count the calls of functions, too, which makes it slower
    """
    settings = folder / "benchmark.conf"
    settings.write_text(ALL_IN_ONE.format(driver=driver, folder=folder / "volumes"))
    counter = folder / "counter"
    command = [
        sys.executable,
        str(Path(__file__).with_name("counted.py")),
        *(["--functions"] if functions else []),
        str(counter),
        "attachd.cmd.all_in_one",
        *("--port", "0", "--state-path", str(folder / "state"), "--config-file", str(settings)),
    ]
    log = folder / "all-in-one.log"
    with _process(command, log) as process:
        url = _printed(log, r"listens on (http://\S+?)/?\s", process)
        yield Running(f"{url}/v3", {"all-in-one": process.pid}, counter)


@contextlib.contextmanager
def production(folder: Path, backends: Backends, shape: Shape) -> Iterator[Running]:
    """Run attachd-manager, and the API under uwsgi."""
    text = PRODUCTION.format(
        folder=folder,
        names=",".join(backends),
        backends="\n".join(
            _group(name, options) for name, options in {**backends, **shape.groups}.items()
        ),
        database=shape.database.replace("$", "$$"),
        rabbit=shape.rabbit.replace("$", "$$"),
        manager_workers=shape.manager_workers,
    )
    settings = {}
    for name in ("manage", "manager", "api"):
        settings[name] = folder / f"{name}.conf"
        settings[name].write_text(text % name)
    _run(_command("manage", "--config-file", str(settings["manage"]), "db", "sync"))
    port = free_port()
    manager = _command("manager", "--config-file", str(settings["manager"]))
    environment = {"ATTACHD_CONFIG_FILES": str(settings["api"])}
    with (
        _process(manager, folder / "manager.out") as manager_process,
        _process(_uwsgi(port, shape), folder / "api.out", environment) as api_process,
    ):
        endpoint = f"http://127.0.0.1:{port}/v3"
        _wait_until_served(endpoint, folder / "api.out", api_process, len(backends))
        pids = {"api": api_process.pid, "manager": manager_process.pid}
        yield Running(endpoint, pids)


@contextlib.contextmanager
def production_with_tgtd(
    backends: Backends, shape: Shape, kept: Path | None = None
) -> Iterator[Running]:
    """Run production() in a work folder, and a tgtd if a backend has the driver tgt."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(work_folder(kept))
        if any(options["driver"] == "tgt" for options in backends.values()):
            target = stack.enter_context(_tgtd(folder))
            backends = {
                name: {**options, **target} if options["driver"] == "tgt" else options
                for name, options in backends.items()
            }
        yield stack.enter_context(production(folder, backends, shape))


@contextlib.contextmanager
def _tgtd(folder: Path) -> Iterator[dict[str, str]]:
    """Run a tgtd; the result are the options of the driver that lead to it."""
    program = shutil.which("tgtd") or "/usr/sbin/tgtd"
    control, portal, log = folder / "tgtd", f"127.0.0.1:{free_port()}", folder / "tgtd.out"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  the command of the package tgt
            [program, "--foreground", "--iscsi", f"portal={portal}"],
            env=os.environ | {"TGT_IPC_SOCKET": str(control)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + TIMEOUT
        while not control.with_name("tgtd.0").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(f"tgtd did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        yield {
            "tgt_volumes_dir": str(folder / "tgt"),
            "tgt_portal": portal,
            "tgt_control_socket": str(control),
        }
    finally:
        process.kill()  # it ignores SIGTERM
        process.wait()


def _group(name: str, options: Mapping[str, str]) -> str:
    lines = (f"{key} = {value}\n" for key, value in options.items())
    return f"[{name}]\n" + "".join(lines)


def _command(name: str, *arguments: str) -> list[str]:
    code = f"import sys; from attachd.cmd.{name} import main; sys.exit(main())"
    return [sys.executable, "-c", code, *arguments]


def _uwsgi(port: int, shape: Shape) -> list[str]:
    return [
        str(Path(sys.executable).with_name("uwsgi")),
        f"--ini={UWSGI}",
        f"--http-socket=127.0.0.1:{port}",
        f"--virtualenv={sys.prefix}",
        f"--processes={shape.api_processes}",
        *([f"--threads={shape.api_threads}"] if shape.api_threads else []),
    ]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(  # noqa: S603  our own command
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise NotStarted(f"{command[-2:]} failed:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def _process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  our own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            # Ctrl-C is for the benchmark, which then ends its processes in order.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _printed(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.05)
    raise NotStarted(f"It did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _wait_until_served(
    endpoint: str, log: Path, process: subprocess.Popen[bytes], backends: int
) -> None:
    """Wait until the API answers, and knows that all backends can take volumes."""
    asking = wire.Connection(endpoint, {"Accept": "application/json"})
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            services = json.loads(asking.request("GET", "/os-services").body)["services"]
            ready = [
                service
                for service in services
                if service["binary"] == "cinder-volume" and service["state"] == "up"
            ]
            if len(ready) >= backends:
                asking.close()
                return
        time.sleep(0.05)
    raise NotStarted(f"The API did not start:\n{log.read_text(errors='replace')[-3000:]}")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
