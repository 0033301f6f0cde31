#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serve a Cinder whose answers are recorded; see cinder-compatibility.rst.

It is run by the Python of an environment that has Cinder, not attachd, and serves until it is
interrupted.  The configuration names this file for two classes: one believes what a token says
of its bearer, as attachd's "noauth" does, the other is a backend that moves no bytes.
"""

import argparse
from collections.abc import Iterator
import contextlib
from pathlib import Path
import signal
import subprocess
import sys
from typing import Any

UNLUCKY = 13
"""A size in GiB with which the backend has no luck; the requests on messages count on it."""

_CONF = """\
[DEFAULT]
auth_strategy = noauth
api_paste_config = {folder}/api-paste.ini
state_path = {folder}
transport_url = {broker}
host = here
scheduler_max_attempts = 1
enabled_backends = fake
resource_query_filters_file = {etc}/resource_filters.json
osapi_volume_listen = 127.0.0.1
rootwrap_config = {etc}/rootwrap.conf
[database]
connection = {database}
[oslo_concurrency]
lock_path = {folder}/locks
[oslo_messaging_notifications]
driver = noop
[fake]
volume_driver = cinder_to_record.Backend
volume_backend_name = fake
"""


def main() -> int:
    """Make the tables, start the processes and wait."""
    options = _parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    conf = _configure(options)
    tools = Path(sys.executable).parent
    subprocess.run([tools / "cinder-manage", "--config-file", conf, "db", "sync"], check=True)
    commands = [
        [tools / "cinder-scheduler", "--config-file", conf],
        [tools / "cinder-volume", "--config-file", conf],
        [
            *(tools / "uwsgi", "--master", "--die-on-term", "--enable-threads", "--need-app"),
            *("--http-socket", f"127.0.0.1:{options.port}", "--processes", "2"),
            *("--buffer-size", "65535", "--lazy-apps"),
            *("--module", "cinder.wsgi.api:application", "--pyargv", f"--config-file {conf}"),
        ],
    ]
    with contextlib.ExitStack() as stack:
        for command in commands:
            stack.enter_context(_running(command, options.folder))
        print(f"http://127.0.0.1:{options.port}", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, epilog="It is ended by Ctrl-C.")
    parser.add_argument("--database", required=True, help="URL of an empty database")
    parser.add_argument("--broker", required=True, help="URL of RabbitMQ, with a virtual host")
    parser.add_argument("--folder", required=True, type=Path, help="for configuration and logs")
    parser.add_argument("--port", type=int, default=18776, help="where the API listens")
    return parser.parse_args()


def _configure(options: argparse.Namespace) -> Path:
    folder = options.folder.resolve()
    etc = Path(sys.prefix, "etc", "cinder")
    paste = (etc / "api-paste.ini").read_text(encoding="utf-8")
    theirs = "cinder.api.middleware.auth:NoAuthMiddleware.factory"
    (folder / "api-paste.ini").write_text(
        paste.replace(theirs, "cinder_to_record:believing"), encoding="utf-8"
    )
    conf = folder / "cinder.conf"
    values = {"broker": options.broker, "database": options.database}
    conf.write_text(_CONF.format(folder=folder, etc=etc, **values), encoding="utf-8")
    return conf


@contextlib.contextmanager
def _running(command: list[Any], folder: Path) -> Iterator[None]:
    name = Path(command[0]).name
    environment = {
        "PYTHONPATH": str(Path(__file__).resolve().parent),
        "PATH": "/usr/sbin:/usr/bin",
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def believing(_global_conf: dict[str, str], **_local_conf: str) -> Any:
    """Return a paste filter that believes tokens ``user:project[:role,role]``.

    It also has all projects exist, which Cinder asks Keystone for before it keeps a default type.
    """
    from cinder import context  # noqa: PLC0415  only Cinder's processes can
    from cinder.api import api_utils  # noqa: PLC0415

    def existing(_asking: Any, project_id: str) -> Any:
        return api_utils.GenericProjectInfo(project_id, "v3")

    api_utils.get_project = existing

    def filter_(application: Any) -> Any:
        def answer(environ: dict[str, Any], start_response: Any) -> Any:
            token = environ.get("HTTP_X_AUTH_TOKEN", "anonymous:0")
            user, project, *roles = token.split(":")
            service = environ.get("HTTP_X_SERVICE_TOKEN", "")
            environ["cinder.context"] = context.RequestContext(
                user,
                project,
                roles=roles[0].split(",") if roles else ["admin", "member", "reader"],
                service_roles=service.split(":")[-1].split(","),
                auth_token=token,
                request_id=environ.get("openstack.request_id"),
            )
            return application(environ, start_response)

        return answer

    return filter_


def _refuse(size: int) -> None:
    if size == UNLUCKY:
        raise RuntimeError("There are no volumes of that size.")


def __getattr__(name: str) -> Any:
    """Make the class Backend when Cinder asks for it."""
    if name != "Backend":
        raise AttributeError(name)
    from cinder.tests import fake_driver  # noqa: PLC0415  only Cinder's processes can

    class Backend(fake_driver.FakeLoggingVolumeDriver):
        """Cinder's own fake driver, which does and says what attachd's does."""

        def create_volume(self, volume: Any) -> Any:
            _refuse(volume.size)
            return super().create_volume(volume)

        def extend_volume(self, volume: Any, new_size: int) -> None:
            _refuse(new_size)
            super().extend_volume(volume, new_size)

        def initialize_connection(self, volume: Any, connector: Any) -> Any:
            connection = super().initialize_connection(volume, connector)
            connection["data"]["volume_id"] = volume.id
            return {**connection, "driver_volume_type": "fake"}

        def _update_volume_stats(self) -> None:
            super()._update_volume_stats()
            pool = self._stats["pools"][0]
            pool.update(multiattach=True, thin_provisioning_support=True, reserved_percentage=0)
            del pool["replication_enabled"], pool["group_replication_enabled"]

    globals()["Backend"] = Backend
    return Backend


if __name__ == "__main__":
    sys.exit(main())
