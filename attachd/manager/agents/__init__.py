# SPDX-License-Identifier: Apache-2.0
"""Serve the agents of hosts: RPC server, desired state, checks of reports."""
