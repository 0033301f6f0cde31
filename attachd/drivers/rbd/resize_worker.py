# SPDX-License-Identifier: Apache-2.0
"""The program that opens an image whose header hosts can write, and extends it; see resizing.py.

It has no files, can start no programs, connects to the cluster's ports alone (from Linux 6.7 on),
and its cephx user reaches no data of any image: what the header names while it is opened leads
nowhere.

The request is a line of JSON from the standard input, :class:`Request`; the answer is ``{}`` or
``{"errno": number or null, "error": reason}``.
"""

import json
import sys
from typing import Any, TypedDict

from attachd.ceph import bindings
from attachd.linux import sandbox


class Request(TypedDict):
    """What is to be done.

    :ivar entity: the cephx user
    :ivar conf: the path of Ceph's configuration file
    :ivar settings: beside it, with the key
    :ivar ports: of the cluster's monitors and OSDs
    :ivar name: of the image
    :ivar size: bytes that the image is to have
    """

    entity: str
    conf: str
    settings: dict[str, str]
    ports: list[int]
    pool: str
    name: str
    size: int


def main() -> None:
    """Extend one image."""
    request: Request = json.loads(sys.stdin.readline())
    sys.stdout.write(json.dumps(_answer(request)))


def _answer(request: Request) -> dict[str, Any]:
    lib = bindings.load()
    try:
        _resize(request)
    except (lib.rados.Error, lib.rbd.Error) as error:
        return {"errno": getattr(error, "errno", None), "error": f"{error}"}
    except OSError as error:
        return {"errno": None, "error": f"No sandbox can be made: {error}"}
    return {}


def _resize(request: Request) -> None:
    lib = bindings.load()
    # The threads that connect start below.
    sandbox.limit_ports(request["ports"])
    connection = lib.rados.Rados(
        name=request["entity"], conffile=request["conf"], conf=request["settings"]
    )
    try:
        connection.connect()
        pool = connection.open_ioctx(request["pool"])
        pool.set_osdmap_full_try()
        # From here on nothing is opened but the image and connections to OSDs.
        sandbox.give_up_files()
        try:
            with lib.rbd.Image(pool, request["name"]) as image:
                if image.size() < request["size"]:
                    image.resize(request["size"])
        finally:
            pool.close()
    finally:
        connection.shutdown()


if __name__ == "__main__":
    main()
