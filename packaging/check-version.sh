#!/bin/sh
# Fails unless the chart and the changelog of this folder are those of the given
# version: a binary carries its chart, whose appVersion is the tag of the image.
set -eu
version=${1:?usage: check-version.sh VERSION}
chart=charts/gpu-operator-hooks/Chart.yaml

status=0
need() {
	grep -Eq "$2" "$1" || { echo "release v$version: $1 has no line $2" >&2; status=1; }
}
dots=$(printf %s "$version" | sed 's/[.+]/\\&/g')
need "$chart" "^version: \"?$dots\"?\$"
need "$chart" "^appVersion: \"?v$dots\"?\$"
need CHANGELOG.md "^## \\[?$dots\\]?( |\$)"
exit $status
