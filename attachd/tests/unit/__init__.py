# SPDX-License-Identifier: Apache-2.0
"""Unit tests: a file for each module, with the same path as under attachd/."""
