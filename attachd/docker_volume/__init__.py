# SPDX-License-Identifier: Apache-2.0
"""The volume plugin for Docker and Podman: attachd-docker-volume."""
