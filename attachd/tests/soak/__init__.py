# SPDX-License-Identifier: Apache-2.0
"""A soak: clients that repeat what was not answered, while everything is killed again and again;
see doc/source/contributor/soak-tests.rst.
"""
