# SPDX-License-Identifier: Apache-2.0
"""Tests with a real Nova; see doc/source/contributor/testing.rst."""
