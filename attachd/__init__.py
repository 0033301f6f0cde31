# SPDX-License-Identifier: Apache-2.0
"""attachd attaches block storage volumes to hosts, and detaches them again.

Whoever imports any part of attachd gets oslo.service's threading backend: it is chosen
here because importing oslo.messaging first would silently choose eventlet.
"""

import warnings

from oslo_service import backend

# Tools such as oslo-config-generator load other libraries before us and so have chosen
# already; they only read our options and run no service.
if backend.get_backend_type() is None:
    backend.init_backend(backend.BackendType.THREADING)

# oslo.service brings eventlet along and taskflow imports it where it finds it.  It patches
# nothing here, and whoever starts attachd can do nothing about its complaint.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
