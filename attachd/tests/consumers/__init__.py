# SPDX-License-Identifier: Apache-2.0
"""Other projects' own tests and modules, run against attachd with a real Keystone.

``python -m attachd.tests.consumers --help`` tells how to run some of them.
"""
