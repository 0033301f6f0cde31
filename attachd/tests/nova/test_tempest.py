# SPDX-License-Identifier: Apache-2.0
"""What Tempest asks of Compute about volumes, on a real Nova.

Which of its tests are left out, and why, is in consumers/left-out.yaml; none may skip itself.
"""

import tempfile

import subunit
import testtools

from attachd.tests.consumers import suites
from attachd.tests.fixtures import lifetime
from attachd.tests.nova import tempest_conf
from attachd.tests.nova.case import NovaCase

_REASONS = frozenset({"traceback", "reason"})
_SHOWN = 700
"""Characters of the end of a traceback."""

COMPUTE = suites.Suite("compute", ("tempest.api.compute",), r"(?i)volume")


def describe(result):
    """Return what a test that did not pass says: its id, its status, and the reason."""
    details = result["details"]
    texts = [details[name].as_text()[-_SHOWN:] for name in details if name in _REASONS]
    return "\n".join([result["id"], result["status"], *texts])


class TempestComputeTest(NovaCase):
    def setUp(self):
        super().setUp()
        self.lift_quotas()
        folder = lifetime.temp_dir(self)
        path = tempest_conf.write(self.cloud, folder)
        self.environment = {"TEMPEST_CONFIG": str(path), "TEMPEST_CONFIG_DIR": str(folder)}

    def lift_quotas(self):
        """Let each project have servers of 100 processors, which are for hosts without guests."""
        wanted = dict.fromkeys(("cores", "ram", "instances"), -1)
        path = "/os-quota-class-sets/default"
        self.admin.ok("compute", "PUT", path, {"quota_class_set": wanted})

    def run_tempest(self, tests):
        """Return the results of tests: a list of dictionaries as of testtools.StreamToDict."""
        results = []
        with tempfile.TemporaryFile() as stream:
            suites.run(COMPUTE, tests, self.environment, stream)
            stream.seek(0)
            to_dict = testtools.StreamToDict(results.append)
            to_dict.startTestRun()
            subunit.ByteStreamToStreamResult(stream, "not subunit").run(to_dict)
            to_dict.stopTestRun()
        # Before them the stream lists all tests of the package.
        return [result for result in results if result["status"] != "exists"]

    def test_tests_of_volumes_pass(self):
        tests, reasons = suites.choose(COMPUTE, self.environment, ".")
        # A reason for which no test is left out is a line too many.
        self.assertEqual([], [reason for reason, count in reasons.counts.items() if not count])
        results = self.run_tempest(tests)
        failed = [result for result in results if result["status"] != "success"]
        self.assertEqual([], [describe(result) for result in failed])
        self.assertEqual(len(tests), len({result["id"] for result in results}))
        self.assert_agreed()
