# SPDX-License-Identifier: Apache-2.0
"""attachd attaches block storage volumes to hosts, and detaches them again.

The import of any part of attachd selects oslo.service's threading backend.  It is selected here
because an earlier import of oslo.messaging would select eventlet.
"""

import os
import sys

# Ctrl-C ends a command without a traceback, also during the imports, which are most of its start.
if os.path.basename(sys.argv[0]).startswith("attachd"):  # noqa: PTH119 (pathlib loads slowly)
    sys.excepthook = lambda kind, error, trace: (
        sys.stderr.write("\n" * sys.stderr.isatty())  # The terminal has written ^C.
        if issubclass(kind, KeyboardInterrupt)
        else sys.__excepthook__(kind, error, trace)
    )

# oslo.service brings eventlet along, and taskflow's libraries import it wherever they find it,
# only to check that it exists.  attachd does not use it, and it warns about each fork.
sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]

from oslo_service import backend  # noqa: E402  after eventlet is hidden

# Tools such as oslo-config-generator import other libraries first, which have selected a backend;
# they only read options and run no service.
if backend.get_backend_type() is None:
    backend.init_backend(backend.BackendType.THREADING)
