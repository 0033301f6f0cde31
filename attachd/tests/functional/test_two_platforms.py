# SPDX-License-Identifier: Apache-2.0
"""Docker and a CSI platform on one host, with a volume of one name each: they stay apart."""

from pathlib import Path
import time

from attachd.tests.fixtures.csi_driver import CsiDriver
from attachd.tests.fixtures.csi_nodes import unmount_below
from attachd.tests.fixtures.csi_requests import mount, new_volume
from attachd.tests.fixtures.docker_plugin import IDLE_SECONDS
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.functional.docker_case import DockerCase
from attachd.tests.selection import full_only


@full_only("containers")
class TwoPlatformsTest(DockerCase):
    def setUp(self):
        super().setUp()
        words = ("--mode=all", f"--agent-socket={self.host.agent_socket}")
        self.driver = CsiDriver(self, self.deployment.url, *words)
        self.folder = temp_dir(self)
        self.addCleanup(unmount_below, self.folder)
        self.capability = mount(fs_type="ext4")

    def create_by_csi(self):
        """Create the volume of the CSI platform; return its id."""
        fields = new_volume(self.volume, volume_capabilities=[self.capability])
        return self.driver.call("CreateVolume", **fields).volume.volume_id

    def start_pod(self, volume_id):
        """Have a pod write to a volume; return the file."""
        volume = {"volume_id": volume_id, "volume_capability": self.capability}
        answer = self.driver.call("ControllerPublishVolume", node_id=self.host.name, **volume)
        volume |= {
            "publish_context": answer.publish_context,
            "staging_target_path": f"{self.folder}/staging",
        }
        self.driver.call("NodeStageVolume", **volume)
        self.driver.call("NodePublishVolume", target_path=f"{self.folder}/pod", **volume)
        file = self.folder / "pod" / "file"
        file.write_text("of the pod")
        return file

    def end_pod(self, volume_id):
        volume = {"volume_id": volume_id}
        self.driver.call("NodeUnpublishVolume", target_path=f"{self.folder}/pod", **volume)
        path = f"{self.folder}/staging"
        self.driver.call("NodeUnstageVolume", staging_target_path=path, **volume)
        self.driver.call("ControllerUnpublishVolume", node_id=self.host.name, **volume)
        self.driver.call("DeleteVolume", **volume)

    def start_container(self):
        """Have a container write to the volume of Docker; return the file."""
        file = Path(self.host.call("Mount", Name=self.volume, ID="a")["Mountpoint"]) / "file"
        self.assertFalse(file.exists())
        file.write_text("of the container")
        return file

    def end_container(self):
        self.host.call("Unmount", Name=self.volume, ID="a")
        self.host.call("Remove", Name=self.volume)

    def check_apart(self, volume_id):
        """Check both volumes while each one is used and the other one comes and goes."""
        of_pod, of_container = self.start_pod(volume_id), self.start_container()
        self.assertEqual("of the pod", of_pod.read_text())
        for _ in range(2):
            self.assertEqual(volume_id, self.create_by_csi())
            self.host.call("Create", Name=self.volume, Opts={})
        self.assertEqual(2, len(self.stored()))
        with of_container.open():
            self.host.restart_plugin()
            time.sleep(3 * IDLE_SECONDS)  # In which the plugin gives back what is not used.
            self.assertEqual("of the pod", of_pod.read_text())
        self.end_container()
        self.assertEqual([volume_id], [volume["id"] for volume in self.stored()])
        self.assertIn("There is no volume", self.host.fail("Get", Name=self.volume))
        self.host.call("Create", Name=self.volume, Opts={})
        of_container = self.start_container()
        self.assertEqual("of the pod", of_pod.read_text())
        self.end_pod(volume_id)
        self.assertEqual("of the container", of_container.read_text())
        self.end_container()
        self.assertEqual([], self.stored())

    def test_volume_of_docker_beside_existing_one_of_csi(self):
        volume_id = self.create_by_csi()
        self.host.call("Create", Name=self.volume, Opts={})
        self.check_apart(volume_id)

    def test_volume_of_csi_beside_existing_one_of_docker(self):
        self.host.call("Create", Name=self.volume, Opts={})
        self.check_apart(self.create_by_csi())

    def test_volume_that_one_platform_is_given_by_its_id_is_not_for_the_other(self):
        """An administrator has both platforms use a volume: the second one is refused."""
        self.host.call("Create", Name=self.volume, Opts={})
        (volume,) = self.stored()
        fields = {"volume_id": volume["id"], "volume_capability": self.capability}
        publish = ("FAILED_PRECONDITION", "ControllerPublishVolume")
        text = self.driver.fail(*publish, node_id=self.host.name, **fields)
        self.assertIn(f"Docker has volume {volume['id']} as {self.volume}", text)
        self.start_container()
        self.end_container()
        other = self.deployment.create_volume()
        file = self.start_pod(other)
        self.assertIn("csi.published", self.host.fail("Create", Name=other, Opts={}))
        time.sleep(3 * IDLE_SECONDS)  # In which the plugin gives back what is not used.
        self.assertEqual("of the pod", file.read_text())
        self.end_pod(other)

    def test_volume_of_csi_is_not_adopted_by_its_id(self):
        volume_id = self.create_by_csi()
        file = self.start_pod(volume_id)
        text = self.host.fail("Create", Name=volume_id, Opts={})
        self.assertIn(f"Volume {volume_id} exists", text)
        self.assertIn("csi.id", text)
        time.sleep(3 * IDLE_SECONDS)  # In which the plugin gives back what is not used.
        self.assertEqual("of the pod", file.read_text())
        self.end_pod(volume_id)
