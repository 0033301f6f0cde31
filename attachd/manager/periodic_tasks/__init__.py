# SPDX-License-Identifier: Apache-2.0
"""Periodic tasks: heartbeat, recovery, exports, conditions of a backend, removal of old rows."""
