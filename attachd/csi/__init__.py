# SPDX-License-Identifier: Apache-2.0
"""The driver of attachd for the Container Storage Interface; needs the extra ``csi``."""
