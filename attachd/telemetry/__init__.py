# SPDX-License-Identifier: Apache-2.0
"""Metrics, traces, log levels and reports of a process."""
