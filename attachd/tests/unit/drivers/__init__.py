# SPDX-License-Identifier: Apache-2.0
"""Tests of attachd.drivers, module by module."""
