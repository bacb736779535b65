"""Renders the Helm chart with several values and checks what comes out, and reads the compose file.

Usage: check.py REPOSITORY

Helm's own engine renders (as a library, without a cluster); each manifest is checked against the schemas of
Kubernetes. Prints one JSON object: the manifests by case, and the compose file. Anything wrong ends it with exit 1.
"""

import json
import sys
from pathlib import Path

import kubernetes_validate
import yaml
from helm_python import Chart, lint

CASES = {
    "least": {"existingSecret": "deck"},
    "most": {
        "replicas": 5,
        "existingSecret": "deck",
        "allowedHosts": ["deck.example"],
        "proxies": ["10.0.0.0/8"],
        "artifactsUrl": "s3://files?endpoint=https://store.example",
        "config": '[log]\nlevel = "info"\n',
        "packs": {"acme.echo.toml": 'name = "acme.echo"\n', "acme.echo.sh": "#!/bin/sh\ncat\n"},
        "env": [{"name": "HELMDECK_LOG", "value": "debug"}],
        "ingress": {"enabled": True, "host": "deck.example", "className": "haproxy", "tlsSecret": "deck-tls"},
        "podAnnotations": {"prometheus.io/scrape": "true"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "deck", "operator": "Exists"}],
        "persistence": {"enabled": True, "size": "1Gi", "storageClass": "fast"},
        "sandbox": True,
    },
    "bare": {
        "replicas": 1,
        "existingSecret": "deck",
        "persistence": {"enabled": False},
        "serviceAccount": {"create": False},
        "spread": False,
    },
}
REFUSED = {
    "no secret": {},
    "no servers": {"existingSecret": "deck", "replicas": 0},
    "no duration": {"existingSecret": "deck", "drainFor": "soon"},
    "ingress without a host": {"existingSecret": "deck", "ingress": {"enabled": True}},
}
KUBERNETES = ("1.27", "1.33")


def manifests(chart: Chart, values: dict) -> list:
    """Renders the chart and returns its manifests in order of their files."""
    rendered = chart.render(values, name="deck", namespace="tools")
    texts = [text for path, text in sorted(rendered.items()) if path.endswith(".yaml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def main() -> None:
    root = Path(sys.argv[1])
    chart = Chart.load(root / "contrib/helm/helmdeck")
    shown = {}
    for case, values in CASES.items():
        shown[case] = manifests(chart, values)
        for manifest in shown[case]:
            for version in KUBERNETES:
                kubernetes_validate.validate(manifest, version, strict=True)
    for case, values in REFUSED.items():
        try:
            chart.validate_schema(values)
            chart.render(values, name="deck", namespace="tools")
        except Exception:  # noqa: BLE001: any refusal is what is wanted
            continue
        sys.exit(f"the chart takes {case}: {values}")
    broken = {**shown["least"][-1], "spec": {"replicas": "three"}}
    try:
        kubernetes_validate.validate(broken, KUBERNETES[0], strict=True)
    except kubernetes_validate.ValidationError:
        pass
    else:
        sys.exit("the schemas of Kubernetes refuse nothing")
    linted = lint(root / "contrib/helm/helmdeck", values=CASES["most"], strict=True)
    compose = yaml.safe_load((root / "contrib/compose/compose.yaml").read_text())
    print(json.dumps({"manifests": shown, "lint": linted, "compose": compose}, default=str))


main()
