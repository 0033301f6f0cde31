# SPDX-License-Identifier: Apache-2.0
"""Hosts with the plugin for Docker on the shared deployment, and a volume name per test."""

from typing import Any
import unittest
import uuid

from attachd.tests.fixtures import agent_deployment
from attachd.tests.fixtures.docker_plugin import PluginHost


class DockerCase(unittest.TestCase):
    """One host; start_host() starts another one.

    :ivar volume: the name of the volume
    """

    def setUp(self) -> None:
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        self.host = self.start_host()
        self.volume = f"data-{uuid.uuid4().hex[:8]}"

    def start_host(self) -> PluginHost:
        """Start another host."""
        return PluginHost(self.deployment, self)

    def stored(self) -> list[Any]:
        """Return the volumes of the API that have the name."""
        answer = self.deployment.request("GET", f"/volumes/detail?name={self.volume}")
        return list(answer.json()["volumes"])
