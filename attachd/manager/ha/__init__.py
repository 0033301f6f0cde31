# SPDX-License-Identifier: Apache-2.0
"""Keep volumes served: membership of processes, leases, recovery, removal of old rows."""
