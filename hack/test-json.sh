#!/usr/bin/env bash
# Tests each module given as argument and prints one stream of test events.
# All modules are tested, even when an earlier one fails.
set -euo pipefail

status=0
for module in "$@"; do
	go -C "$module" test -json ./... || status=1
done
exit "$status"
