# SPDX-License-Identifier: Apache-2.0
"""attachd attaches block storage volumes to hosts, and detaches them again.

Whoever imports any part of attachd gets oslo.service's threading backend: it is chosen
here because importing oslo.messaging first would silently choose eventlet.
"""

import sys

# oslo.service brings eventlet along, and taskflow's libraries import it wherever they find it,
# only to know that it is there.  We use nothing of it, and it complains about each fork.
sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]

from oslo_service import backend  # noqa: E402  after what it must not find

# Tools such as oslo-config-generator load other libraries before us and so have chosen
# already; they only read our options and run no service.
if backend.get_backend_type() is None:
    backend.init_backend(backend.BackendType.THREADING)
