# SPDX-License-Identifier: Apache-2.0
"""RPC over oslo.messaging: clients, versions, and a transport within one process."""
