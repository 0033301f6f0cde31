# SPDX-License-Identifier: Apache-2.0
"""attachd attaches block storage volumes to hosts, and detaches them again.

The import of any part of attachd selects oslo.service's threading backend.  It is selected here
because an earlier import of oslo.messaging would select eventlet.
"""

import sys

# oslo.service brings eventlet along, and taskflow's libraries import it wherever they find it,
# only to check that it exists.  attachd does not use it, and it warns about each fork.
sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]

from oslo_service import backend  # noqa: E402  after eventlet is hidden

# Tools such as oslo-config-generator import other libraries first, which have selected a backend;
# they only read options and run no service.
if backend.get_backend_type() is None:
    backend.init_backend(backend.BackendType.THREADING)
