# SPDX-License-Identifier: Apache-2.0
"""Flows of the manager: each with its tasks, which call the driver."""
