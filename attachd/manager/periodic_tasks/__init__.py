# SPDX-License-Identifier: Apache-2.0
"""Periodic tasks of a backend: heartbeat, recovery, exports, conditions, removal of old rows."""
