# SPDX-License-Identifier: Apache-2.0
"""A real Keystone in a process of its own, ready in three seconds; run by keystones.py.

``python -P keystoned.py FOLDER PASSWORD``: FOLDER holds keystone.conf.  It makes keys, tables,
the user ``admin`` and its own entry in the catalogue as ``keystone-manage`` does, but in the
process that serves, since loading Keystone is what takes the time.  It ends when its parent does.
"""

import os
from pathlib import Path
import sys
import threading
import time
from unittest import mock

REGION = "RegionOne"


def main() -> None:
    """Serve until killed."""
    folder, password = Path(sys.argv[1]), sys.argv[2]
    # Keystone would read them as its own.
    del sys.argv[1:]
    threading.Thread(target=_follow_parent, args=[os.getppid()], daemon=True).start()
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(folder / "keystone.conf")
    _make_keys(folder)

    from keystone.common.sql import upgrades
    from keystone.server import wsgi
    import waitress

    application = wsgi.initialize_public_application()
    upgrades.offline_sync_database_to_version()
    server = waitress.create_server(application, host="127.0.0.1", port=0, threads=8)
    url = f"http://127.0.0.1:{server.effective_port}/v3"
    _bootstrap(password, url)
    sys.stdout.write(f"Keystone listens on {url} \n")
    sys.stdout.flush()
    server.run()


def _make_keys(folder: Path) -> None:
    from keystone.common import fernet_utils

    for name in ("fernet_tokens", "fernet_receipts", "credential"):
        keys = fernet_utils.FernetUtils(str(folder / name), 3, name)
        keys.create_key_directory()
        keys.initialize_key_repository()


def _bootstrap(password: str, url: str) -> None:
    from keystone.cmd import bootstrap

    # The application has loaded them; they may not be loaded twice.
    with mock.patch.object(bootstrap.backends, "load_backends"):
        strapper = bootstrap.Bootstrapper()
    strapper.admin_username = strapper.project_name = strapper.admin_role_name = "admin"
    strapper.admin_password = password
    strapper.service_name = "keystone"
    strapper.region_id = REGION
    strapper.public_url = strapper.internal_url = strapper.admin_url = url
    strapper.bootstrap()


def _follow_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)  # between two looks; no result depends on it
    os._exit(1)


if __name__ == "__main__":
    main()
