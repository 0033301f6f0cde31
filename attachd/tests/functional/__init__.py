# SPDX-License-Identifier: Apache-2.0
"""The served API with real databases, brokers and targets; for whoever changes a path."""
