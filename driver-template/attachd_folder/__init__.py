# SPDX-License-Identifier: Apache-2.0
"""A driver of attachd, and the backend that its tests use."""
