# SPDX-License-Identifier: Apache-2.0
"""What drivers for container platforms ask attachd's API."""
