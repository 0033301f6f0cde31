# SPDX-License-Identifier: Apache-2.0
"""One module at a time, path by path as under attachd/; for whoever changes that module."""
