"""The Helm chart, rendered as `helm template` would: values checked by their schema, templates put together."""

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.deploy.gotemplate import Renderer
from tests.serve.running import ROOT

CHART = ROOT / "deploy" / "helm" / "accord"
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
ABOUT: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
SCHEMA = jsonschema_rs.validator_for(yaml.safe_load((CHART / "values.schema.json").read_text()))

Manifest = dict[str, Any]


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Put values over others: tables are merged, everything else is replaced."""
    both = {
        name: merged(values[name], value) if isinstance(value, dict) and isinstance(values.get(name), dict) else value
        for name, value in over.items()
    }
    return {**values, **both}


def renderer(values: Mapping[str, Any], release: str = "my", namespace: str = "agents") -> Renderer:
    """What renders the chart's files with values that the schema allows."""
    whole = merged(DEFAULTS, values)
    SCHEMA.validate(whole)
    chart = {"Name": ABOUT["name"], "Version": ABOUT["version"], "AppVersion": ABOUT["appVersion"]}
    about = {"Name": release, "Namespace": namespace, "Service": "Helm"}
    made = Renderer({"Values": whole, "Chart": chart, "Release": about})
    made.define((CHART / "templates" / "_helpers.tpl").read_text())
    return made


def manifests(values: Mapping[str, Any], release: str = "my") -> dict[str, Manifest]:
    """Return what the chart comes to, by kind."""
    made = renderer(values, release)
    found: dict[str, Manifest] = {}
    for file in sorted((CHART / "templates").glob("*.yaml")):
        for document in yaml.safe_load_all(made.render(file.read_text())):
            if document is not None:
                assert document["kind"] not in found, "one of each kind"
                found[document["kind"]] = document
    return found
