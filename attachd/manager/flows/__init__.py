# SPDX-License-Identifier: Apache-2.0
"""One file per thing a manager does at a backend: the flow first, then its tasks."""
