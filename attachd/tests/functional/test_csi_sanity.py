# SPDX-License-Identifier: Apache-2.0
"""csi-sanity of kubernetes-csi/csi-test against attachd-csi, with each kind of storage.

No distribution has a package of it; doc/source/contributor/testing.rst says how it is built.
"""

from collections.abc import Callable
import json
import re
import unittest

from attachd.tests import wait
from attachd.tests.fixtures import agent_deployment, processes, requirements
from attachd.tests.fixtures.agent_deployment import (
    AgentDeployment,
    AgentHost,
    FileDeployment,
    HostDeployment,
    RbdDeployment,
)
from attachd.tests.fixtures.csi_driver import CsiDriver
from attachd.tests.fixtures.csi_nodes import driver_options, unmount_below
from attachd.tests.fixtures.csi_requests import GIB
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.selection import full_only

_NOT_CLAIMED = re.compile("VolumeGroupSnapshot|GroupController|[Mm]odify")
"""Calls that the driver does not have: their specifications are skipped."""
_LIMIT = 3
"""Volumes of the node, so that csi-sanity can reach the limit."""


class _SanityCase(unittest.TestCase):
    """One host, and a driver with all services.

    :cvar kind: makes the deployment
    """

    kind: Callable[..., HostDeployment] = AgentDeployment

    def check(self):
        sanity = requirements.require_tool(self, "csi-sanity")
        deployment = agent_deployment.shared_kind(self, type(self).kind)
        host, folder = AgentHost(deployment, self), temp_dir(self)
        self.addCleanup(unmount_below, folder)
        agent_socket = host.top / "agent.sock"
        host.set(f"local_socket = {agent_socket}\nmax_attachments = {_LIMIT}")
        host.start()
        words = (f"--agent-socket={agent_socket}", *driver_options(deployment))
        driver = CsiDriver(self, deployment.url, "--mode=all", "--zone=nova", *words)
        done = processes.run(
            [
                sanity,
                f"--csi.endpoint=unix://{driver.socket}",
                f"--csi.mountdir={folder}/target",
                f"--csi.stagingdir={folder}/staging",
                f"--csi.testvolumesize={GIB}",
                f"--csi.testvolumeexpandsize={2 * GIB}",
                "--csi.testnodevolumeattachlimit=true",
                f"--ginkgo.json-report={folder}/report.json",
            ],
            timeout=4 * wait.TIMEOUT,
        )
        (report,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        found = [spec for spec in report["SpecReports"] if spec["LeafNodeText"]]
        failed = [self.describe(spec) for spec in found if spec["State"] == "failed"]
        self.assertEqual(([], 0), (failed, done.returncode))
        skipped = [self.describe(spec) for spec in found if spec["State"] == "skipped"]
        self.assertEqual([], [text for text in skipped if not _NOT_CLAIMED.search(text)])
        self.assertGreater(len(found) - len(skipped), 50)

    @staticmethod
    def describe(spec):
        reason = spec.get("Failure", {}).get("Message", "")
        return f"{spec['LeafNodeText']}: {reason}"


@full_only("containers")
class TgtSanityTest(_SanityCase):
    def test_sanity_passes_whole_for_calls_that_are_claimed(self):
        self.check()


@full_only("containers")
class FileSanityTest(_SanityCase):
    kind = FileDeployment

    def test_sanity_passes_whole_for_calls_that_are_claimed(self):
        self.check()


@full_only("containers")
class RbdSanityTest(_SanityCase):
    kind = RbdDeployment

    def test_sanity_passes_whole_for_calls_that_are_claimed(self):
        self.check()
