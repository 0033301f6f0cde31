# SPDX-License-Identifier: Apache-2.0
"""Fencing, which ends the access of hosts and of single attachments with the backend's proof; and
draining of hosts.
"""
