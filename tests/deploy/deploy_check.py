#!/usr/bin/env python3
"""Holds deploy/ against what the program has: metrics of alerts, settings of manifests, and the page that explains the alerts.

deploy_check.py [PROMTOOL]: with promtool, rules are also checked and tested by it.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
failures = []


def expect(holds, message):
    if not holds:
        failures.append(message)


def names(pattern, text):
    return set(re.findall(pattern, text, re.M))


alerts = (ROOT / "deploy/prometheus/alerts.yaml").read_text()
tests = (ROOT / "deploy/prometheus/alerts_test.yaml").read_text()
operations = (ROOT / "docs/operations.md").read_text()
table = (ROOT / "docs/metrics.md").read_text()

metrics = names(r"^\| `(baton_\w+)`", table)
expect(len(metrics) > 20, "docs/metrics.md: its table was not understood")
for used in names(r"\b(baton_\w+)", alerts + tests):
    base = re.sub(r"_bucket$", "", used)
    expect(base in metrics, f"alerts.yaml: {used} is not a metric of docs/metrics.md")
for label, value in names(r'(\w+)=~?"([^"$]+)"', alerts):
    if label in ("job",):
        continue
    for one in value.split("|"):
        expect(re.search(rf"`{label}`: [^|]*\b{re.escape(one)}\b", table), f'alerts.yaml: no metric has {label}="{one}"')

explained, fired = names(r"^### (\w+)", operations), names(r"alert: (\w+)", alerts)
expect(explained == fired, f"docs/operations.md explains {sorted(explained - fired)} too many and lacks {sorted(fired - explained)}")
for flag in names(r"`(--[a-z-]+)", operations):
    known = flag in (ROOT / "docs/settings.md").read_text() or flag in ("--gpus", "--model", "--config")
    expect(known, f"docs/operations.md: {flag} is not a setting")

settings = names(r"`--([a-z-]+)`", (ROOT / "docs/settings.md").read_text())
router = names(r"`--([a-z-]+)`", (ROOT / "docs/router-reference.md").read_text())
expect(len(settings) > 20 and len(router) > 10, "docs/settings.md or docs/router-reference.md: its table was not understood")


def check_manifest(name):
    manifest = (ROOT / "deploy/kubernetes" / name).read_text()
    config = manifest.split("---", 1)[0]
    for key in names(r"^    ([a-z-]+): [^|]", config):
        expect(key in settings, f"{name}: {key} is not a setting")
    for flag in names(r"^ +- --([a-z-]+)=", manifest):
        expect(flag in router, f"{name}: --{flag} is not a flag of the router")
    timeout = max(int(t) for t in names(r"shutdown-timeout[:=] ?(\d+)", manifest))
    for grace in names(r"terminationGracePeriodSeconds: (\d+)", manifest):
        expect(int(grace) > timeout + 5, f"{name}: a grace period must be longer than preStop and shutdown-timeout together")
    pods = len(re.findall(r"^kind: (?:Deployment|StatefulSet)$", manifest, re.M))
    for probe in ("startupProbe", "livenessProbe", "readinessProbe", "preStop", "terminationGracePeriodSeconds"):
        expect(len(re.findall(rf"^ +{probe}:", manifest, re.M)) == pods, f"{name}: not every pod has its {probe}")
    for role, instance in names(r"http://baton-(prefill|decode)-(\d+):", manifest):
        expect(f"name: baton-{role}-{instance}\n" in manifest, f"{name}: the router calls baton-{role}-{instance}, which has no service")
        replicas = re.search(rf"serviceName: baton-{role}\n  replicas: (\d+)", manifest)
        expect(replicas and int(instance) < int(replicas[1]), f"{name}: the router calls baton-{role}-{instance}, beyond its replicas")


check_manifest("unified.yaml")
apart = "role" in settings and "prefill" in router
if apart:
    check_manifest("disaggregated.yaml")
for variable in names(r"\b(BATON_ROUTER_[A-Z_]+)", (ROOT / "deploy/baton-router.service").read_text()):
    expect(variable.removeprefix("BATON_ROUTER_").lower().replace("_", "-") in router, f"baton-router.service: {variable} is not a setting")

made = subprocess.run([sys.executable, ROOT / "deploy/grafana/make_dashboard.py", "--check"], capture_output=True, text=True)
expect(made.returncode == 0, made.stderr.strip())
for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]) if len(sys.argv) > 1 else ():
    ran = subprocess.run([sys.argv[1], *arguments], cwd=ROOT / "deploy/prometheus", capture_output=True, text=True)
    expect(ran.returncode == 0, ran.stdout + ran.stderr)

print("\n".join(failures) if failures else f"{len(fired)} alerts, {len(metrics)} metrics: in order")
if not apart:
    print("not checked: disaggregated.yaml, since this program has no --role or its router no --prefill")
sys.exit(bool(failures))
