# SPDX-License-Identifier: Apache-2.0
"""Start of daemons whose libraries are in an extra, and may not be installed."""

from collections.abc import Collection
import importlib
import sys

from attachd import process_defaults


def run(name: str, module: str, extra: str, libraries: Collection[str]) -> int:
    """Run ``main()`` of a module with the command line.

    :param name: of the program
    :param libraries: top-level modules of the extra
    :returns: its exit code, or 1 if one of the libraries is missing
    """
    process_defaults.end_quietly_on_interrupt()
    try:
        process_defaults.use_threads()
        code: int = importlib.import_module(module).main(sys.argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in libraries:
            raise
        sys.stderr.write(
            f"{name}: {error.name} is missing here: pip install '.[{extra}]' in the sources of "
            "attachd\n"
        )
        return 1
    return code
