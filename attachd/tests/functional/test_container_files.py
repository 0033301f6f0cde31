# SPDX-License-Identifier: Apache-2.0
"""Tests of the files in etc/ for Kubernetes and Nomad, and of the image that both use.

Nothing is applied here: that takes a cluster.  Manifests are checked against the schemas of
Kubernetes, and what they name against what exists: in each other, in the driver, in the image.
"""

from collections.abc import Iterator
import itertools
import json
from pathlib import Path, PurePosixPath
import re
import subprocess
from typing import Any
import unittest

import hcl2
import kubernetes_validate
import yaml

from attachd.agent.connectors import brick
from attachd.agent.mount import mount_rules, mounts
from attachd.cli.clouds import Cloud
from attachd.conf import GROUPS
from attachd.csi import (
    command,
    controller,
    csi_pb2,
    identity,
    new_snapshot,
    node,
    node_staging,
)
from attachd.csi.new_volume import PARAMETERS
from attachd.platforms.calls import LONGEST
from attachd.tests.fixtures import guides, lifetime, requirements
from attachd.tests.fixtures.processes import ROOT

ETC = ROOT / "etc"
KUBERNETES = ETC / "kubernetes"
COMPONENT = KUBERNETES / "snapshots"
CONTAINERFILE = ETC / "container/host.Containerfile"
IMAGE = "attachd-host"
UPSTREAM = "registry.k8s.io/sig-storage/"
KUBELET = "/var/lib/kubelet"
SNAPSHOT_API = "snapshot.storage.k8s.io/v1"
"""Custom resources: Kubernetes has no schemas of them."""

_VERSIONS = ("1.34", "1.36")
"""Of Kubernetes: the oldest one that is supported, and that of the sidecars."""

Manifest = dict[str, Any]


def read_manifests(*folders: Path) -> list[Manifest]:
    """Return the documents of all manifests in folders, but those of kustomize."""
    files = sorted(itertools.chain.from_iterable(folder.glob("*.yaml") for folder in folders))
    return [
        document
        for file in files
        if file.name != "kustomization.yaml"
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]


def parse_driver(words: list[str]) -> Any:
    """Return the options of attachd-csi, as it parses them itself."""
    return command._parse(words, Cloud())


class KubernetesCase(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.base = read_manifests(KUBERNETES)
        self.component = read_manifests(COMPONENT)
        self.examples = read_manifests(KUBERNETES / "examples")

    def get(self, kind: str, name: str) -> Manifest:
        """Return one manifest."""
        (found,) = (
            item
            for item in self.base + self.examples
            if item["kind"] == kind and item["metadata"]["name"] == name
        )
        return found

    def list_pods(self) -> list[Manifest]:
        """Return the descriptions of the pods of the driver."""
        return [
            item["spec"]["template"]["spec"]
            for item in self.base
            if item["kind"] in {"DaemonSet", "Deployment"}
        ]

    def container(self, kind: str, workload: str, name: str) -> Manifest:
        """Return a container of a workload."""
        pod = self.get(kind, workload)["spec"]["template"]["spec"]
        (found,) = (item for item in list_containers(pod) if item["name"] == name)
        return found


def list_containers(pod: Manifest) -> list[Manifest]:
    """Return the containers of a pod, those of its start first."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


class SchemaTest(KubernetesCase):
    def test_manifests_keep_the_schemas_of_kubernetes(self):
        for item in self.base + self.examples + self.component:
            if item["apiVersion"] == SNAPSHOT_API or item in self.patches():
                continue
            for version in _VERSIONS:
                with self.subTest(item["kind"], name=item["metadata"]["name"], version=version):
                    used = kubernetes_validate.validate(item, version, strict=True)
                    self.assertEqual(version, used)

    def patches(self):
        """Return the manifests that change others."""
        return [item for item in self.component if item["kind"] == "Deployment"]

    def test_patches_name_manifests_that_then_keep_the_schemas(self):
        (patch,) = self.patches()
        name, namespace = patch["metadata"]["name"], patch["metadata"]["namespace"]
        item = self.get("Deployment", name)
        self.assertEqual(item["metadata"]["namespace"], namespace)
        pod = item["spec"]["template"]["spec"]
        added = patch["spec"]["template"]["spec"].pop("containers")
        self.assertEqual({"template": {"spec": {}}}, patch["spec"])
        names = [container["name"] for container in [*pod["containers"], *added]]
        self.assertEqual(len(names), len(set(names)))
        pod["containers"] += added
        for version in _VERSIONS:
            kubernetes_validate.validate(item, version, strict=True)

    def test_component_lists_each_manifest(self):
        file = COMPONENT / "kustomization.yaml"
        kustomization = yaml.safe_load(file.read_text(encoding="utf-8"))
        self.assertEqual("Component", kustomization["kind"])
        listed = {*kustomization["resources"], *(p["path"] for p in kustomization["patches"])}
        self.assertEqual({path.name for path in COMPONENT.glob("*.yaml")} - {file.name}, listed)

    def test_unknown_field_is_detected(self):
        item = self.get("CSIDriver", identity.DRIVER)
        item["spec"]["attachRequred"] = True
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(item, _VERSIONS[0], strict=True)

    def test_kustomization_lists_each_manifest_and_the_image(self):
        file = KUBERNETES / "kustomization.yaml"
        kustomization = yaml.safe_load(file.read_text(encoding="utf-8"))
        names = {path.name for path in KUBERNETES.glob("*.yaml")} - {file.name}
        self.assertEqual(names, set(kustomization["resources"]))
        self.assertEqual([IMAGE], [image["name"] for image in kustomization["images"]])
        namespaces = {
            item["metadata"].get("namespace", kustomization["namespace"]) for item in self.base
        }
        self.assertEqual({kustomization["namespace"]}, namespaces)
        self.get("Namespace", kustomization["namespace"])


class DriverTest(KubernetesCase):
    """The CSIDriver object and the storage classes are as the driver is."""

    def test_driver_object_equals_capabilities(self):
        spec = self.get("CSIDriver", identity.DRIVER)["spec"]
        rpc = csi_pb2.ControllerServiceCapability.RPC
        self.assertEqual(
            rpc.PUBLISH_UNPUBLISH_VOLUME in controller.CAPABILITIES, spec["attachRequired"]
        )
        of_node = csi_pb2.NodeServiceCapability.RPC
        gives_group = of_node.VOLUME_MOUNT_GROUP in node.CAPABILITIES
        self.assertEqual("File" if gives_group else "None", spec["fsGroupPolicy"])
        self.assertEqual(["Persistent"], spec["volumeLifecycleModes"])
        self.assertFalse(spec["podInfoOnMount"] or spec["requiresRepublish"])
        enabled = "--enable-capacity" in self.container(
            "Deployment", "attachd-csi-controller", "csi-provisioner"
        )["args"]  # fmt: skip
        self.assertEqual(enabled, spec["storageCapacity"])

    def test_driver_object_lets_no_context_be_mounted(self):
        flags = {"mount": {"mount_flags": ['context="system_u:object_r:t:s0:c1,c2"']}}
        capability = csi_pb2.VolumeCapability(access_mode={"mode": 7}, **flags)
        with self.assertRaisesRegex(Exception, "cannot be an option"):
            node_staging.read(capability, {}, "/staging")
        self.assertFalse(self.get("CSIDriver", identity.DRIVER)["spec"]["seLinuxMount"])

    def test_storage_classes_have_parameters_of_the_driver(self):
        classes = [item for item in self.examples if item["kind"] == "StorageClass"]
        self.assertEqual(6, len(classes))
        for item in classes:
            with self.subTest(item["metadata"]["name"]):
                self.assertEqual(identity.DRIVER, item["provisioner"])
                parameters = item["parameters"]
                fs_type = parameters.pop("csi.storage.k8s.io/fstype", "ext4")
                self.assertIn(fs_type, mount_rules.FILESYSTEMS)
                self.assertLessEqual(set(parameters), set(PARAMETERS))
                mount_rules.MountRules(options=",".join(item.get("mountOptions", ())))

    def test_claims_and_volumes_name_existing_classes(self):
        classes = {
            item["metadata"]["name"] for item in self.examples if item["kind"] == "StorageClass"
        }
        used = [item.get("spec", {}).get("storageClassName") for item in self.examples]
        self.assertLessEqual({name for name in used if name}, classes)
        volume = self.get("PersistentVolume", "existing")["spec"]
        self.assertEqual(identity.DRIVER, volume["csi"]["driver"])
        claim = self.get("PersistentVolumeClaim", volume["claimRef"]["name"])
        self.assertEqual("existing", claim["spec"]["volumeName"])


class SnapshotExamplesTest(KubernetesCase):
    """The objects for snapshots name the driver and each other."""

    def test_class_has_parameters_of_the_driver(self):
        item = self.get("VolumeSnapshotClass", "attachd")
        self.assertEqual(identity.DRIVER, item["driver"])
        self.assertLessEqual(set(item.get("parameters", ())), set(new_snapshot.PARAMETERS))
        self.assertEqual("Delete", item["deletionPolicy"])

    def test_snapshot_and_volume_of_it_name_existing_objects(self):
        spec = self.get("VolumeSnapshot", "monday")["spec"]
        self.get("VolumeSnapshotClass", spec["volumeSnapshotClassName"])
        source = self.get("PersistentVolumeClaim", spec["source"]["persistentVolumeClaimName"])
        restored = self.get("PersistentVolumeClaim", "restored")["spec"]
        self.assertEqual("VolumeSnapshot", restored["dataSource"]["kind"])
        self.assertEqual(SNAPSHOT_API.partition("/")[0], restored["dataSource"]["apiGroup"])
        self.get("VolumeSnapshot", restored["dataSource"]["name"])
        # It is at least as large.
        self.assertEqual(source["spec"]["resources"], restored["resources"])

    def test_existing_snapshot_stays_when_its_object_is_deleted(self):
        content = self.get("VolumeSnapshotContent", "existing")
        self.assertEqual("Retain", content["spec"]["deletionPolicy"])
        self.assertEqual(identity.DRIVER, content["spec"]["driver"])
        snapshot = self.get("VolumeSnapshot", content["spec"]["volumeSnapshotRef"]["name"])
        source = snapshot["spec"]["source"]["volumeSnapshotContentName"]
        self.assertEqual(content["metadata"]["name"], source)


class PageTest(KubernetesCase):
    """What the page on Kubernetes says."""

    PAGE = ROOT / "doc/source/admin/kubernetes.rst"

    def test_table_of_capabilities_equals_driver(self):
        text = self.PAGE.read_text(encoding="utf-8")
        rows = re.findall(r"(?m)^   \* - ([\w*, ]+)\n     -(?: (yes|no))?$", text)
        claimed: dict[str, dict[str, bool]] = {}
        for names, answer in rows:
            if names.startswith("**"):
                part = claimed.setdefault(names.strip("*"), {})
            elif answer:
                part.update(dict.fromkeys(names.split(", "), answer == "yes"))
        plugin = identity.Identity(identity.DRIVER, [])
        response = plugin.get_plugin_capabilities(csi_pb2.GetPluginCapabilitiesRequest())
        for part, kind, capabilities in (
            ("Controller", csi_pb2.ControllerServiceCapability.RPC, controller.CAPABILITIES),
            ("Node", csi_pb2.NodeServiceCapability.RPC, node.CAPABILITIES),
            (
                "Plugin",
                csi_pb2.PluginCapability.Service,
                [item.service.type for item in response.capabilities if item.service.type],
            ),
        ):
            with self.subTest(part):
                expected = {
                    name: number in capabilities for name, number in kind.Type.items() if number
                }
                self.assertEqual(expected, claimed[part])

    def test_page_has_each_storage_class_and_manifest(self):
        text = self.PAGE.read_text(encoding="utf-8")
        classes = [item for item in self.examples if item["kind"].endswith("Class")]
        for name in (
            *(item["metadata"]["name"] for item in classes),
            *(file.name for file in KUBERNETES.glob("*.yaml") if file.name != "namespace.yaml"),
            "snapshots/",
        ):
            self.assertIn(f"``{name}``", text)

    def test_commands_move_a_volume_from_cinder_csi(self):
        requirements.require_tool(self, "jq")
        folder = lifetime.temp_dir(self)
        volume_id = "8f1c1b8a-5d4e-4d0e-9a0e-2f6d3c1b7a90"
        former = {
            "driver": "cinder.csi.openstack.org",
            "volumeHandle": volume_id,
            "fsType": "xfs",
            "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "1-2-cinder"},
        }
        volume = self.get("PersistentVolume", "existing")
        claim = self.get("PersistentVolumeClaim", "data")
        volume["metadata"] |= {"name": "pvc-1", "uid": "1", "resourceVersion": "2"}
        volume["spec"] |= {
            "csi": former,
            "claimRef": {"namespace": "default", "name": "data", "uid": "3"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
            "persistentVolumeReclaimPolicy": "Delete",
        }
        claim["metadata"] |= {"uid": "3", "labels": {"app": "x"}, "namespace": "default"}
        claim["spec"] |= {"storageClassName": "cinder", "volumeName": "pvc-1"}
        for name, item in (("pv", volume), ("pvc", claim)):
            item["status"] = {"phase": "Bound"}
            (folder / f"{name}.json").write_text(json.dumps(item))
        (block,) = (item for item in guides.parse_blocks(self.PAGE) if item.readers == "move")
        subprocess.run(["sh", "-euc", block.text], check=True, cwd=folder)
        new_volume, new_claim = (
            json.loads((folder / f"new-{name}.json").read_text()) for name in ("pv", "pvc")
        )
        for item in (new_volume, new_claim):
            kubernetes_validate.validate(item, _VERSIONS[-1], strict=True)
        expected = {"driver": identity.DRIVER, "volumeHandle": volume_id, "fsType": "xfs"}
        self.assertEqual(expected, new_volume["spec"]["csi"])
        self.assertEqual({"namespace": "default", "name": "data"}, new_volume["spec"]["claimRef"])
        self.assertEqual("Retain", new_volume["spec"]["persistentVolumeReclaimPolicy"])
        self.assertNotIn("nodeAffinity", new_volume["spec"])
        self.assertEqual(new_volume["metadata"]["name"], new_claim["spec"]["volumeName"])
        self.assertEqual(
            {"name": "data", "namespace": "default", "labels": {"app": "x"}},
            new_claim["metadata"],
        )
        classes = {new_volume["spec"]["storageClassName"], new_claim["spec"]["storageClassName"]}
        self.assertEqual({"attachd-ext4"}, classes)


class ReferencesTest(KubernetesCase):
    def test_pods_name_existing_accounts_volumes_and_secrets(self):
        accounts = {i["metadata"]["name"] for i in self.base if i["kind"] == "ServiceAccount"}
        secrets = {i["metadata"]["name"] for i in self.examples if i["kind"] == "Secret"}
        pods = self.list_pods()
        self.assertEqual(2, len(pods))
        self.assertEqual(accounts, {pod["serviceAccountName"] for pod in pods})
        for pod in pods:
            mounted = {
                mount["name"] for item in list_containers(pod) for mount in item["volumeMounts"]
            }
            self.assertEqual({volume["name"] for volume in pod["volumes"]}, mounted)
            for volume in pod["volumes"]:
                self.assertEqual(1, len(volume.keys() - {"name"}))
                if "secret" in volume:
                    self.assertIn(volume["secret"]["secretName"], secrets)

    def test_roles_and_accounts_of_bindings_exist(self):
        for kind in ("ClusterRole", "Role"):
            (binding,) = (item for item in self.base if item["kind"] == f"{kind}Binding")
            self.assertEqual(kind, binding["roleRef"]["kind"])
            role = self.get(kind, binding["roleRef"]["name"])
            (subject,) = binding["subjects"]
            account = self.get("ServiceAccount", subject["name"])
            self.assertEqual(account["metadata"]["namespace"], subject["namespace"])
            self.assertEqual(
                role["metadata"].get("namespace"), binding["metadata"].get("namespace")
            )

    def test_role_of_component_is_that_of_the_controller(self):
        role, binding = (item for item in self.component if item["kind"].startswith("ClusterRole"))
        self.assertEqual(role["metadata"]["name"], binding["roleRef"]["name"])
        self.assertEqual("ClusterRole", binding["roleRef"]["kind"])
        (subject,) = binding["subjects"]
        account = self.get("ServiceAccount", subject["name"])
        self.assertEqual(account["metadata"]["namespace"], subject["namespace"])
        self.assertEqual(account["metadata"]["name"], self.pod_account())

    def pod_account(self):
        """Return the account of the controller."""
        deployment = self.get("Deployment", "attachd-csi-controller")
        return deployment["spec"]["template"]["spec"]["serviceAccountName"]

    def test_sidecars_have_the_rights_of_their_own_manifests(self):
        granted = {
            (group, resource, verb)
            for item in self.base + self.component
            if item["kind"] in {"ClusterRole", "Role"}
            for rule in item["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        text = Path(__file__).with_name("csi_sidecar_rights.yaml").read_text(encoding="utf-8")
        needed = {
            (group, resource, verb)
            for groups in yaml.safe_load(text).values()
            for group, resources in groups.items()
            for resource, verbs in resources.items()
            for verb in verbs.split()
        }
        self.assertEqual(needed, granted)

    def test_secrets_have_placeholders_only(self):
        for item in self.base:
            self.assertNotEqual("Secret", item["kind"])
        values = yaml.safe_load(
            self.get("Secret", "attachd-csi-cloud")["stringData"]["clouds.yaml"]
        )
        secret = values["clouds"]["attachd"]["auth"]["application_credential_secret"]
        self.assertEqual("REPLACE_SECRET", secret)

    def test_probes_ask_ports_that_are_served(self):
        for pod in self.list_pods():
            served = {
                argument.rpartition(":")[2]
                for item in pod["containers"]
                for argument in item.get("args", ())
                if argument.startswith("--http-endpoint=")
            }
            for item in pod["containers"]:
                named = {port["name"]: port["containerPort"] for port in item.get("ports", ())}
                for probe in ("livenessProbe", "readinessProbe"):
                    if probe in item:
                        port = item[probe]["httpGet"]["port"]
                        self.assertIn(f"{named.get(port, port)}", served, item["name"])

    def test_images_are_upstream_versions_or_our_own(self):
        for pod in self.list_pods():
            for item in list_containers(pod):
                name, _colon, tag = item["image"].partition(":")
                if name != IMAGE:
                    self.assertTrue(name.startswith(UPSTREAM), name)
                    self.assertRegex(tag, r"^v\d+\.\d+\.\d+$")


class ControllerTest(KubernetesCase):
    """The controller, with the component for snapshots."""

    def setUp(self):
        super().setUp()
        self.pod = self.get("Deployment", "attachd-csi-controller")["spec"]["template"]["spec"]
        for item in self.component:
            if item["kind"] == "Deployment":
                self.pod["containers"] += item["spec"]["template"]["spec"]["containers"]
        self.driver = self.container("Deployment", "attachd-csi-controller", "attachd-csi")

    def test_driver_parses_its_options(self):
        self.assertEqual([command.NAME], self.driver["command"])
        options = parse_driver(self.driver["args"])
        self.assertEqual(command.Mode.CONTROLLER, options.mode)
        check_socket(self, self.pod, options.endpoint)

    def test_driver_finds_the_cloud_of_the_secret(self):
        variables = {item["name"]: item["value"] for item in self.driver["env"]}
        path = PurePosixPath(variables["OS_CLIENT_CONFIG_FILE"])
        (mount,) = (i for i in self.driver["volumeMounts"] if i["mountPath"] == f"{path.parent}")
        (volume,) = (i for i in self.pod["volumes"] if i["name"] == mount["name"])
        secret = self.get("Secret", volume["secret"]["secretName"])["stringData"]
        clouds = yaml.safe_load(secret[path.name])["clouds"]
        self.assertEqual({variables["OS_CLOUD"]}, set(clouds))

    def test_sidecars_wait_longer_than_a_call_takes(self):
        names = {"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"}
        for item in self.pod["containers"]:
            if item["name"] in names:
                names.remove(item["name"])
                options = dict(word.partition("=")[::2] for word in item["args"])
                self.assertGreater(seconds(options["--timeout"]), LONGEST)
                self.assertLessEqual(seconds(options["--retry-interval-max"]), LONGEST)
                self.assertIn("--leader-election", options)
        self.assertEqual(set(), names)

    def test_sidecars_have_ports_of_their_own(self):
        ports = [
            word.rpartition(":")[2]
            for item in self.pod["containers"]
            for word in item["args"]
            if word.startswith("--http-endpoint=")
        ]
        self.assertEqual(5, len(ports))
        self.assertEqual(len(ports), len(set(ports)))

    def test_images_are_upstream_versions(self):
        for item in self.pod["containers"]:
            if item is not self.driver:
                self.assertRegex(item["image"], rf"^{UPSTREAM}[a-z-]+:v\d+\.\d+\.\d+$")

    def test_containers_have_one_account_and_no_privilege(self):
        account = self.pod["securityContext"]
        self.assertTrue(account["runAsNonRoot"])
        self.assertEqual(0o600, parse_driver(self.driver["args"]).socket_mode)
        for item in list_containers(self.pod):
            context = item["securityContext"]
            self.assertNotIn("runAsUser", context)
            self.assertFalse(context["allowPrivilegeEscalation"])
            self.assertEqual(["ALL"], context["capabilities"]["drop"])


def seconds(text: str) -> int:
    """Return the seconds of a duration such as 65s."""
    number, unit = text[:-1], text[-1]
    return int(number) * {"s": 1, "m": 60}[unit]


def check_socket(test: unittest.TestCase, pod: Manifest, path: Path) -> None:
    """Check that the containers of a pod find the socket of the driver at its path."""
    for item in pod["containers"]:
        words = [word for word in item["args"] if word.startswith("--csi-address=")]
        if words:
            test.assertEqual([f"--csi-address={path}"], words)
        test.assertIn(f"{path.parent}", [mount["mountPath"] for mount in item["volumeMounts"]])


class NodeTest(KubernetesCase):
    def setUp(self):
        super().setUp()
        self.pod = self.get("DaemonSet", "attachd-csi-node")["spec"]["template"]["spec"]
        self.driver, self.agent = (
            self.container("DaemonSet", "attachd-csi-node", name)
            for name in ("attachd-csi", "attachd-agent")
        )

    def path_of(self, container: Manifest, path: str) -> tuple[str, str | None]:
        """Return the path on the host of a path in a container, and how mounts propagate."""
        mounted = sorted(container["volumeMounts"], key=lambda item: len(item["mountPath"]))
        for item in reversed(mounted):
            if PurePosixPath(path).is_relative_to(item["mountPath"]):
                (volume,) = (i for i in self.pod["volumes"] if i["name"] == item["name"])
                inner = PurePosixPath(path).relative_to(item["mountPath"])
                host = f"{PurePosixPath(volume['hostPath']['path']) / inner}"
                return host, item.get("mountPropagation")
        raise AssertionError(f"{path} is not of the host")

    def test_driver_parses_its_options(self):
        options = parse_driver(self.driver["args"])
        self.assertEqual(command.Mode.NODE, options.mode)
        self.assertEqual(0o600, options.socket_mode)
        check_socket(self, self.pod, options.endpoint)

    def test_kubelet_finds_the_socket(self):
        registrar = self.container("DaemonSet", "attachd-csi-node", "node-driver-registrar")
        words = dict(word.partition("=")[::2] for word in registrar["args"])
        socket = f"{parse_driver(self.driver['args']).endpoint}"
        expected = words["--kubelet-registration-path"]
        self.assertEqual(expected, self.path_of(self.driver, socket)[0])
        self.assertEqual(expected, f"{KUBELET}/plugins/{identity.DRIVER}/csi.sock")
        self.assertEqual(
            f"{KUBELET}/plugins_registry/x", self.path_of(registrar, "/registration/x")[0]
        )

    def test_agent_has_options_that_exist(self):
        options = {
            f"OS_{group.GROUP}__{option.name}".upper() for group in GROUPS
            for option in group.OPTIONS
        }  # fmt: skip
        variables = {item["name"] for item in self.agent["env"]}
        self.assertEqual(set(), variables - options)

    def test_agent_and_driver_have_the_same_socket_and_journal(self):
        (socket,) = (i for i in self.agent["env"] if i["name"] == "OS_AGENT__LOCAL_SOCKET")
        self.assertEqual(Path(socket["value"]), parse_driver(self.driver["args"]).agent_socket)
        (state,) = (
            option.default
            for group in GROUPS
            for option in group.OPTIONS
            if (group.GROUP, option.name) == ("agent", "state_path")
        )
        for path in (socket["value"], state, "/dev/sda"):
            self.assertEqual(path, self.path_of(self.agent, path)[0])
            self.assertEqual(path, self.path_of(self.driver, path)[0])
        for probe in ("startupProbe", "livenessProbe"):
            self.assertIn(socket["value"], self.agent[probe]["exec"]["command"][-1])

    def test_mounts_reach_containers_at_the_same_path(self):
        target = f"{KUBELET}/pods/1/volumes/x/mount"
        self.assertEqual((target, "Bidirectional"), self.path_of(self.driver, target))
        self.assertEqual((target, "HostToContainer"), self.path_of(self.agent, target))

    def test_agent_and_driver_work_on_the_host(self):
        self.assertTrue(self.pod["hostNetwork"])
        self.assertTrue(self.pod["hostPID"])
        for item in (self.agent, self.driver):
            self.assertEqual(
                {"privileged": True, "runAsUser": 0}, item["securityContext"], item["name"]
            )
        self.assertFalse(self.pod["automountServiceAccountToken"])
        self.assertEqual([{"operator": "Exists"}], self.pod["tolerations"])


def unquote(value: Any) -> Any:
    """Return what hcl2 has read, without the quotes of strings and its marks."""
    if isinstance(value, dict):
        return {
            unquote(key): unquote(item) for key, item in value.items() if not key.startswith("__")
        }
    if isinstance(value, list):
        return [unquote(item) for item in value]
    if isinstance(value, str) and value.startswith('"'):
        return value[1:-1].replace('\\"', '"')
    return value


class NomadTest(unittest.TestCase):
    def read(self, name: str) -> dict[str, Any]:
        with (ETC / "nomad" / name).open(encoding="utf-8") as file:
            return dict(unquote(hcl2.load(file)))

    def task(self, name: str) -> dict[str, Any]:
        """Return the task of a job, with the defaults of its variables."""
        content = self.read(f"{name}.nomad.hcl")
        (job,), variables = content["job"], content.get("variable", [])
        (group,) = job[name]["group"]
        ((task,),) = (item["task"] for item in group.values())
        text = json.dumps(task["attachd-csi"])
        for variable, values in (pair for item in variables for pair in item.items()):
            text = text.replace(f"${{var.{variable}}}", values["default"])
        return dict(json.loads(text))

    def test_files_of_nomad_can_be_parsed(self):
        files = sorted((ETC / "nomad").iterdir())
        self.assertEqual(4, len(files))
        for file in files:
            self.assertTrue(self.read(file.name), file.name)

    def test_plugins_parse_their_options(self):
        for mode in (command.Mode.CONTROLLER, command.Mode.NODE):
            with self.subTest(mode):
                task = self.task(f"attachd-csi-{mode}")
                (plugin,), (config,) = task["csi_plugin"], task["config"]
                self.assertEqual(("attachd", mode), (plugin["id"], plugin["type"]))
                self.assertEqual(command.NAME, config["command"])
                options = parse_driver(config["args"])
                self.assertEqual(mode, options.mode)
                self.assertEqual(f"{options.endpoint}", f"{plugin['mount_dir']}/csi.sock")

    def test_node_has_the_agent_and_its_state_at_the_same_paths(self):
        task = self.task("attachd-csi-node")
        (config,), (plugin,) = task["config"], task["csi_plugin"]
        self.assertTrue(config["privileged"])
        self.assertEqual(("host", "host"), (config["pid_mode"], config["network_mode"]))
        paths = {mount["source"] for mount in config["mount"]}
        self.assertEqual(paths, {mount["target"] for mount in config["mount"]})
        options = parse_driver(config["args"])
        self.assertLessEqual({f"{options.agent_socket.parent}", "/var/lib/attachd", "/dev"}, paths)
        self.assertEqual(f"{options.directory}", plugin["stage_publish_base_dir"])

    def test_volume_and_job_use_the_plugin(self):
        volume, (job,) = self.read("volume.hcl"), self.read("job.nomad.hcl")["job"]
        self.assertEqual("attachd", volume["plugin_id"])
        self.assertLessEqual(set(volume["parameters"][0]), set(PARAMETERS))
        (used,) = job["writer"]["group"][0]["writer"]["volume"]
        self.assertEqual(volume["id"], used["data"]["source"])


class ImageTest(unittest.TestCase):
    """No image is built here: that takes a registry."""

    def setUp(self):
        super().setUp()
        self.text = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
        (line,) = re.findall(r"apt-get install --no-install-recommends -y ([\w -]+?) +&&",
                             self.text)  # fmt: skip
        self.packages = set(line.split())

    def test_image_has_the_packages_of_bindep(self):
        lines = (ROOT / "bindep.txt").read_text(encoding="utf-8").splitlines()
        listed = {
            line.split()[0] for line in lines if re.search(r"\[.*\bhost\b.*platform:dpkg\]", line)
        }
        self.assertEqual(listed, self.packages)

    def test_image_has_what_agent_and_driver_run(self):
        needed = {"util-linux", "mount", "libseccomp2", "kmod"}
        for tools, _folder, _name in brick._REQUIREMENTS.values():
            needed |= set(tools.values())
        for fs_type in mount_rules.FILESYSTEMS:
            needed.add(mounts.PACKAGES[f"mkfs.{fs_type}"])
        self.assertEqual(set(), needed - self.packages)

    def test_packages_of_image_are_those_of_debian(self):
        cache = requirements.require_package_lists(self)
        done = subprocess.run(
            [cache, "show", "--no-all-versions", *sorted(self.packages)],
            check=False,
            capture_output=True,
            text=True,
        )
        self.assertEqual("", done.stderr)
        found = set(re.findall(r"^Package: (.*)$", done.stdout, re.MULTILINE))
        self.assertEqual(self.packages, found)

    def test_image_installs_commands_of_manifests(self):
        (extras,) = re.findall(r"pip install .* '\./attachd\[([\w,]+)\]'", self.text)
        self.assertEqual({"csi", "host"}, set(extras.split(",")))
        scripts = (ROOT / "setup.cfg").read_text(encoding="utf-8")
        used = {words[0] for words in list_commands()} | {"attachd-csi"}
        for name in used:
            self.assertRegex(scripts, rf"(?m)^    {name} = attachd\.")
        for file in re.findall(r"^COPY (?!--from)(\S+)", self.text, re.MULTILINE):
            self.assertTrue((ROOT / file).exists(), file)


def list_commands() -> Iterator[list[str]]:
    """Yield the commands of the containers of our image."""
    for item in read_manifests(KUBERNETES):
        pod = item.get("spec", {}).get("template", {}).get("spec")
        for container in list_containers(pod) if pod else ():
            if container["image"] == IMAGE:
                yield container["command"]
