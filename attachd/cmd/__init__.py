# SPDX-License-Identifier: Apache-2.0
"""Processes of the service, and commands of administrators.

The import of this package prepares the interpreter for them, before anything else is imported.
"""

from attachd import process_defaults

process_defaults.end_quietly_on_interrupt()
process_defaults.escape_output()
process_defaults.use_threads()
