#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate ``attachd/csi/csi_pb2.py`` and its types from ``csi.proto``.

    python tools/csi_messages.py [FOLDER]

It needs grpcio-tools, which the extra ``test`` has.
"""

from importlib import resources
from pathlib import Path
import sys

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parent.parent / "attachd" / "csi"
_HEAD = "# SPDX-License-Identifier: Apache-2.0\n"


def generate(folder: Path) -> None:
    """Write the generated files into a folder.

    :raises SystemExit: csi.proto is wrong; the compiler has printed the reason
    """
    arguments = [f"--proto_path={SOURCE}", f"--python_out={folder}", f"--pyi_out={folder}"]
    known = resources.files("grpc_tools") / "_proto"
    if protoc.main(["protoc", *arguments, f"--proto_path={known}", "csi.proto"]):
        sys.exit(1)
    for name in ("csi_pb2.py", "csi_pb2.pyi"):
        path = folder / name
        path.write_text(_HEAD + path.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
