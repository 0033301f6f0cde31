# SPDX-License-Identifier: Apache-2.0
"""Which process may work on what: membership of processes, volume leases, joint work."""
