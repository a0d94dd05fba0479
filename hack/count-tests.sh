#!/usr/bin/env bash
# Counts the test events in GOTESTSUM_JSONFILE and removes that file. A package
# that fails without a failing test (it does not build, it exits) counts as one
# failure.
set -euo pipefail

awk -F '"' '
	{ named = $14 == "Test" }
	$8 == "pass" && named { passed++ }
	$8 == "fail" && named { failed++; red[$12] = 1 }
	$8 == "fail" && !named && !red[$12] { failed++ }
	END { printf "%d passed, %d failed\n", passed, failed }
' "$GOTESTSUM_JSONFILE"
rm -f "$GOTESTSUM_JSONFILE"
