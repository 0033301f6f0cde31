# SPDX-License-Identifier: Apache-2.0
"""Unit tests of attachd/manager/periodic_tasks."""
