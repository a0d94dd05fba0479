#!/usr/bin/env bash
# Runs all tests and prints one stream of test events. The packages that start a
# cluster come last, even when others have failed: they measure how soon things
# happen. They wait more than they compute, so two of them run at a time, each on a
# cluster of its own.
set -euo pipefail

# The tests of test/e2e that run beside the others: they install the controller, or start
# a cluster of their own. Both halves take about as long.
half='^Test(Contested|Controller|Leader|Follows|Remove.*Controller|UninstallStops|KubeVirtComes|Metrics|Cases|Race|Simulate|VirtOperator|Wake|WhichKubeVirt)'

status=0
mapfile -t packages < <(go list ./... | grep -Ev '/(internal/(attach|bind)|test/(api|cluster|e2e|demo|pause))(/|$)')
go test -json "${packages[@]}" || status=1

# One test runs under the race detector, which needs cgo. What it consists of is compiled
# before anything is measured.
raced='^TestChaos$'
CGO_ENABLED=1 go test -race -c -o /dev/null ./internal/bind || status=1

beside=$(mktemp -t gpuctl-test-beside.XXXXXX)
trap 'rm -f "$beside"' EXIT
{
	CGO_ENABLED=1 go test -race -json -run "$raced" ./internal/bind || touch "$beside.failed"
	go test -json -p 1 -timeout 40m -skip "$raced" ./internal/attach ./internal/bind ./test/api/... ./test/cluster/... ./test/pause ./test/demo/... || touch "$beside.failed"
	go test -json -timeout 40m -run "$half" ./test/e2e || touch "$beside.failed"
} >"$beside" &
go test -json -p 1 -timeout 40m -skip "$half" ./test/e2e/... || status=1
wait
cat "$beside"
if [ -e "$beside.failed" ]; then
	rm -f "$beside.failed"
	status=1
fi
exit "$status"
