# SPDX-License-Identifier: Apache-2.0
"""A soak test: clients repeat unanswered calls while all processes are killed repeatedly;
see doc/source/contributor/soak-tests.rst.
"""
