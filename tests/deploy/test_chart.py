"""The Helm chart: rendered with several values, judged by Kubernetes' own schemas, and held against the real server."""

import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from accord import __version__
from accord.http.operator_endpoints import HEALTH_PATH, READY_PATH
from accord.server.http_server import GRANIAN_KILL_SECONDS
from accord.server.settings_loader import load
from accord.server.startup import exposure_problem
from tests.deploy.chart import ABOUT, CHART, DEFAULTS, Manifest, manifests, renderer
from tests.deploy.gotemplate import TemplateError
from tests.doc_blocks import accord as parsed_by_accord
from tests.serve.running import environment

STORE = {"store": {"url": "postgresql://accord:secret@db.example/accord"}}
OLDEST = "1.27"
VERSIONS = (OLDEST, kubernetes_validate.latest_version())

EVERYTHING: dict[str, Any] = {
    "fullnameOverride": "agents",
    "image": {"repository": "registry.example/agents", "tag": "7", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "agents": ["shop.booking:agent", "flow.yaml"],
    "url": "https://agents.example",
    "store": {"existingSecret": "db", "key": "address"},
    "config": 'keep_days = 3\n\n[[auth.schemes]]\ntype = "api-keys"\n\n[push]\nsigning_keys = ["env:WEBHOOK_KEY"]\n',
    "drainSeconds": 20,
    "graceSeconds": 60,
    "env": [{"name": "WEBHOOK_KEY", "valueFrom": {"secretKeyRef": {"name": "hooks", "key": "key"}}}],
    "envFrom": [{"secretRef": {"name": "models"}}],
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "agents.example"}, {"host": "www.agents.example", "path": "/a2a"}],
        "tls": [{"secretName": "tls", "hosts": ["agents.example"]}],
    },
    "autoscaling": {"enabled": True, "maxReplicas": 20},
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "serviceAccount": {"name": "agents", "annotations": {"role": "agents"}},
    "podAnnotations": {"note": "x"},
    "podLabels": {"team": "agents"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "agents", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "keySecret": {"name": "scrape"}},
}
LITTLE: dict[str, Any] = {
    **STORE,
    "replicas": 1,
    "podDisruptionBudget": {"enabled": False},
    "serviceAccount": {"create": False},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "ingress": {"enabled": True, "annotations": {}, "hosts": [{"host": "a.example"}]},
}
SETS = {"defaults": STORE, "everything": EVERYTHING, "little": LITTLE}

sets = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


def pod(found: dict[str, Manifest]) -> dict[str, Any]:
    spec: dict[str, Any] = found["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(found: dict[str, Manifest]) -> dict[str, Any]:
    (only,) = pod(found)["containers"]
    return dict(only)


@sets
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_every_manifest(values: dict[str, Any], version: str) -> None:
    found = manifests(values)
    assert {"ConfigMap", "Deployment", "Service"} <= set(found)
    for kind, manifest in found.items():
        if kind != "ServiceMonitor":  # the operator's own, of which Kubernetes knows nothing
            kubernetes_validate.validate(manifest, version, strict=True)


def test_the_image_can_be_pinned_by_its_digest() -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    pinned = STORE | {"image": {"repository": "registry.example/agents", "tag": "7", "digest": digest}}
    assert container(manifests(pinned))["image"] == f"registry.example/agents@{digest}"


def test_each_part_can_be_had_and_done_without() -> None:
    optional = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor"}
    everything, defaults, little = (set(manifests(values)) for values in (EVERYTHING, STORE, LITTLE))
    assert everything >= optional
    assert defaults & optional == {"PodDisruptionBudget"}
    assert "ServiceAccount" not in little
    assert "Secret" not in everything, "it is somebody else's"


@sets
def test_selectors_match_the_pods(values: dict[str, Any]) -> None:
    found = manifests(values)
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        pod(found)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    selectors += [found[kind]["spec"]["selector"]["matchLabels"] for kind in found if kind in ("PodDisruptionBudget",)]
    selectors += [found[kind]["spec"]["podSelector"]["matchLabels"] for kind in found if kind == "NetworkPolicy"]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels
    for manifest in found.values():
        assert manifest["metadata"]["labels"]["helm.sh/chart"] == f"accord-{ABOUT['version']}"
    if "ServiceMonitor" in found:
        wanted = found["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= found["Service"]["metadata"]["labels"].items()


@sets
def test_names_and_ports_lead_to_the_server(values: dict[str, Any]) -> None:
    found = manifests(values)
    (port,) = container(found)["ports"]
    variables = {one["name"]: one.get("value") for one in container(found)["env"]}
    assert variables["ACCORD_SERVER__PORT"] == str(port["containerPort"])
    (served,) = found["Service"]["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    for probe, path in (("startupProbe", HEALTH_PATH), ("livenessProbe", HEALTH_PATH), ("readinessProbe", READY_PATH)):
        assert container(found)[probe]["httpGet"] == {"path": path, "port": port["name"]}
    name = found["Deployment"]["metadata"]["name"]
    volumes = {volume["name"]: volume for volume in pod(found)["volumes"]}
    assert volumes["config"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    for one in (*pod(found)["initContainers"], container(found)):
        assert {mount["name"] for mount in one["volumeMounts"]} == set(volumes)
        (store,) = [variable for variable in one["env"] if variable["name"] == "ACCORD_STORE"]
        wanted = store["valueFrom"]["secretKeyRef"]
        secret = found.get("Secret")
        here = {"name": secret["metadata"]["name"], "key": next(iter(secret["stringData"]))} if secret else None
        assert wanted == (here or {"name": "db", "key": "address"})
    if "HorizontalPodAutoscaler" in found:
        assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in found["Deployment"]["spec"], "or every upgrade would undo it"
    if "Ingress" in found:
        backends = [path["backend"] for rule in found["Ingress"]["spec"]["rules"] for path in rule["http"]["paths"]]
        for backend in backends:
            assert backend["service"] == {"name": found["Service"]["metadata"]["name"], "port": {"name": "http"}}
    if "ServiceAccount" in found:
        assert pod(found)["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]


@sets
def test_a_node_is_replaced_without_a_gap(values: dict[str, Any]) -> None:
    found = manifests(values)
    assert found["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    settings = settings_of(found, Path("none"))
    longest = settings.server.drain_seconds + settings.server.grace_seconds + GRANIAN_KILL_SECONDS
    assert pod(found)["terminationGracePeriodSeconds"] >= longest
    probe = container(found)["readinessProbe"]
    assert settings.server.drain_seconds > probe["periodSeconds"] * probe["failureThreshold"], "it is noticed in time"


@sets
def test_containers_run_unprivileged_and_read_only(values: dict[str, Any]) -> None:
    found = manifests(values)
    context = pod(found)["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 10001)
    for one in (*pod(found)["initContainers"], container(found)):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["resources"]["limits"]["memory"]
    assert pod(found)["automountServiceAccountToken"] is False
    assert pod(found)["enableServiceLinks"] is False


def settings_of(found: dict[str, Manifest], folder: Path) -> Any:
    """The settings that a container has."""
    file = folder / "accord.toml" if folder.exists() else None
    if file is not None:
        file.write_text(found["ConfigMap"]["data"]["accord.toml"])
    secrets = {"ACCORD_STORE": "postgresql://accord@db/accord", "WEBHOOK_KEY": "0123456789abcdef"}
    variables = {one["name"]: one.get("value", secrets.get(one["name"])) for one in container(found)["env"]}
    return load(file, variables).settings


@sets
def test_the_settings_may_be_served(values: dict[str, Any], tmp_path: Path) -> None:
    found = manifests(values)
    settings = settings_of(found, tmp_path)
    assert exposure_problem(settings) is None
    assert settings.server.behind_proxy
    assert settings.server.url == (values.get("url") or None)
    mounted = {mount["mountPath"] for mount in container(found)["volumeMounts"]}
    assert mounted == {"/etc/accord", "/data", "/tmp"}, "where the image looks for settings, and may write"


@sets
def test_the_commands_are_commands(values: dict[str, Any]) -> None:
    found = manifests(values)
    assert container(found)["args"] == ["serve", *values.get("agents", [])]
    (upgrade,) = pod(found)["initContainers"]
    for arguments in (container(found)["args"], upgrade["args"]):
        parsed_by_accord(arguments)


def test_a_change_of_settings_replaces_the_nodes() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return str(manifests(values)["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum(STORE) != checksum({**STORE, "config": "keep_days = 1\n"})


def test_a_missing_store_is_reported() -> None:
    with pytest.raises(TemplateError, match=r"store\.existingSecret or store\.url"):
        manifests({})


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 3},
        {"replicas": "3"},
        {"store": {"url": "sqlite:////data/accord.db"}},
        {"ingress": {"hosts": [{"path": "/"}]}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"image": {"digest": "latest"}},
        {"url": "agents.example"},
        {"drainSeconds": -1},
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        renderer(wrong)


def test_the_schema_covers_every_value() -> None:
    known = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    assert set(DEFAULTS) | {"global"} == set(known)
    for name, value in DEFAULTS.items():
        if known[name].get("additionalProperties") is False:
            assert set(value) == set(known[name]["properties"]), name


def test_the_chart_is_of_this_version() -> None:
    assert ABOUT["appVersion"] == __version__
    assert ABOUT["kubeVersion"].startswith(f">={OLDEST}.")


@sets
def test_the_notes_name_existing_objects(values: dict[str, Any]) -> None:
    notes = renderer(values).render((CHART / "templates" / "NOTES.txt").read_text())
    found = manifests(values)
    assert f"deployment/{found['Deployment']['metadata']['name']} --container accord" in notes
    command = re.search(r"-- accord (.*)", notes)
    assert command is not None
    parsed_by_accord(shlex.split(command[1]))
    assert ("port-forward" in notes) == ("url" not in values)


def test_service_variables_do_not_collide_with_settings(tmp_path: Path) -> None:
    """A pod that has service links all the same gets variables that look like ours."""
    links = {"ACCORD_PORT": "tcp://10.0.0.1:80", "ACCORD_SERVICE_HOST": "10.0.0.1", "ACCORD_SERVICE_PORT": "80"}
    more = {"ACCORD_PORT_80_TCP": "tcp://10.0.0.1:80", "ACCORD_PORT_80_TCP_ADDR": "10.0.0.1"}
    env = {name: value for name, value in environment(tmp_path).items() if name.startswith("ACCORD_")}
    assert load(None, env | links | more).settings.server.port == 8000
