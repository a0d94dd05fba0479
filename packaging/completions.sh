#!/bin/sh
# Writes the completion scripts of gpuctl, under both of its names, into a folder.
set -eu
cd "$(dirname "$0")/.."
out=${1:?usage: completions.sh FOLDER}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$tmp/gpuctl" ./cmd/gpuctl
ln -s gpuctl "$tmp/kubectl-gpuctl"

rm -rf "$out"
mkdir -p "$out"
for name in gpuctl kubectl-gpuctl; do
	"$tmp/$name" completion bash >"$out/$name.bash"
	"$tmp/$name" completion zsh >"$out/_$name"
	"$tmp/$name" completion fish >"$out/$name.fish"
	"$tmp/$name" completion powershell >"$out/$name.ps1"
done
