# SPDX-License-Identifier: Apache-2.0
"""Tests of the served API with real databases, message brokers and iSCSI targets."""
