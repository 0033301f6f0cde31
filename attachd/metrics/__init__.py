# SPDX-License-Identifier: Apache-2.0
"""What attachd counts and measures of itself, for Prometheus; all rooms above may count.

``catalogue`` says what there is, ``recording`` counts, ``exporter`` tells.
"""
