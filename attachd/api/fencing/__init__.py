# SPDX-License-Identifier: Apache-2.0
"""Fencing: ending the access of hosts and of single attachments, with the backend's proof."""
