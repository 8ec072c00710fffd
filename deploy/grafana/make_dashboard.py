#!/usr/bin/env python3
"""Writes dashboard.json beside it from the table of docs/metrics.md: a panel for each metric, by kind.

make_dashboard.py          writes the file
make_dashboard.py --check  exit 1 if it is not what would be written
"""
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent.parent / "docs" / "metrics.md"
OUT = HERE / "dashboard.json"
ROW = re.compile(r"^\| `(baton_\w+)` \| (counter|gauge|histogram) \| (?:`(\w+)`)?[^|]*\| ([^|]*?) \|")
# What an operator looks at first; all others follow in the order of the table.
FIRST = ("baton_sequences_running", "baton_sequences_waiting", "baton_generation_tokens_total", "baton_time_to_first_token_seconds",
         "baton_inter_token_latency_seconds", "baton_requests_refused_total", "baton_requests_failed_total", "baton_cache_usage_ratio",
         "baton_prefix_cache_hits_total")
WIDTH, HEIGHT, COLUMNS = 8, 8, 3


def metrics():
    rows = [m.groups() for m in map(ROW.match, TABLE.read_text().splitlines()) if m]
    missing = [name for name in FIRST if name not in {r[0] for r in rows}]
    if missing:
        sys.exit(f"{TABLE} has no row of {', '.join(missing)}")
    return sorted(rows, key=lambda r: FIRST.index(r[0]) if r[0] in FIRST else len(FIRST))


def queries(name, kind, label):
    chosen = '{instance=~"$instance"}'
    if kind == "histogram":
        bucket = f"sum by (le) (rate({name}_bucket{chosen}[$__rate_interval]))"
        return [(f"histogram_quantile({q}, {bucket})", f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)]
    by = label or "instance"
    value = f"rate({name}{chosen}[$__rate_interval])" if kind == "counter" else f"{name}{chosen}"
    return [(f"sum by ({by}) ({value})", "{{" + by + "}}")]


def unit(name, kind):
    if kind == "histogram" or name.endswith(("_seconds", "_seconds_mean", "_seconds_sum")):
        return "s"
    if name.endswith("_ratio"):
        return "percentunit"
    if "bytes" in name:
        return "Bps" if kind == "counter" else "bytes"
    return "cps" if kind == "counter" else "short"


def panel(index, name, kind, label, what):
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": what.rstrip("."),
        "description": f"{name} ({kind})",
        "datasource": {"type": "prometheus", "uid": "$source"},
        "gridPos": {"x": index % COLUMNS * WIDTH, "y": index // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit(name, kind), "min": 0}, "overrides": []},
        "targets": [{"refId": chr(65 + i), "expr": expr, "legendFormat": legend}
                    for i, (expr, legend) in enumerate(queries(name, kind, label))],
    }


def dashboard():
    return {
        "title": "Baton",
        "uid": "baton",
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "source", "type": "datasource", "query": "prometheus"},
            {"name": "instance", "type": "query", "datasource": {"type": "prometheus", "uid": "$source"}, "includeAll": True, "multi": True,
             "query": "label_values(baton_requests_total, instance)", "refresh": 2},
        ]},
        "panels": [panel(i, *row) for i, row in enumerate(metrics())],
    }


def main():
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        if not OUT.exists() or OUT.read_text() != text:
            sys.exit(f"{OUT} is not what docs/metrics.md gives; run deploy/grafana/make_dashboard.py")
    else:
        OUT.write_text(text)


main()
