# SPDX-License-Identifier: Apache-2.0
"""Tests with virtual machines and os-brick; see doc/source/contributor/testing.rst."""
