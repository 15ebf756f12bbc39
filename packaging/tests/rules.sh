#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Prometheus's own tool on our rules, their tests, and the dashboard's expressions. Needs promtool (in Debian's package
# prometheus) and jq.
set -eu

cd "$(dirname "$0")/.."
for program in promtool jq; do
    command -v "$program" > /dev/null || {
        echo "rules: $program is not installed; apt-get install --no-install-recommends prometheus jq" >&2
        exit 1
    }
done
promtool check rules prometheus/evenkeel.rules.yml
promtool test rules prometheus/evenkeel.test.yml
# A rule for each expression of the dashboard: a file in JSON is one in YAML.
expressions=$(mktemp)
trap 'rm -f "$expressions"' EXIT
jq '{groups: [{name: "dashboard", rules: [.panels[].targets // [] | .[].expr
    | gsub("\\$__rate_interval"; "5m")] | to_entries | map({record: "panel:\(.key)", expr: .value})}]}' \
    grafana/evenkeel.json > "$expressions"
promtool check rules "$expressions"
