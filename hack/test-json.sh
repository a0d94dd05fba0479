#!/usr/bin/env bash
# Tests each module given as argument and prints one stream of test events. All
# modules are tested, even when an earlier one fails. In gpuctl's own module the
# packages that start a cluster come last and one after the other: they measure
# how soon things happen.
set -euo pipefail

status=0
for module in "$@"; do
	mapfile -t packages < <(go -C "$module" list ./... | grep -Ev '/test/(cluster|e2e|demo)(/|$)')
	go -C "$module" test -json "${packages[@]}" || status=1
done
go test -json -p 1 -timeout 20m ./test/cluster/... ./test/e2e/... ./test/demo/... || status=1
exit "$status"
