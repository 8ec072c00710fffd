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
manifest = (ROOT / "deploy/kubernetes/unified.yaml").read_text()
chosen = manifest.split("baton.yaml: |\n", 1)[1].split("---", 1)[0]
for key in names(r"^    ([a-z-]+):", chosen):
    expect(key in settings, f"unified.yaml: {key} is not a setting")
timeout = int(re.search(r"shutdown-timeout: (\d+)", chosen)[1])
grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", manifest)[1])
expect(grace > timeout + 5, "unified.yaml: the grace period must be longer than preStop and shutdown-timeout together")

made = subprocess.run([sys.executable, ROOT / "deploy/grafana/make_dashboard.py", "--check"], capture_output=True, text=True)
expect(made.returncode == 0, made.stderr.strip())
for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]) if len(sys.argv) > 1 else ():
    ran = subprocess.run([sys.argv[1], *arguments], cwd=ROOT / "deploy/prometheus", capture_output=True, text=True)
    expect(ran.returncode == 0, ran.stdout + ran.stderr)

print("\n".join(failures) if failures else f"{len(fired)} alerts, {len(metrics)} metrics: in order")
sys.exit(bool(failures))
