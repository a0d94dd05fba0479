#!/usr/bin/env bash
# Runs all tests and prints one stream of test events. The packages that start a
# cluster come last and one after the other, even when others have failed: they
# measure how soon things happen.
set -euo pipefail

status=0
mapfile -t packages < <(go list ./... | grep -Ev '/test/(cluster|e2e|demo)(/|$)')
go test -json "${packages[@]}" || status=1
go test -json -p 1 -timeout 20m ./test/cluster/... ./test/e2e/... ./test/demo/... || status=1
exit "$status"
