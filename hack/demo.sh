#!/usr/bin/env bash
# Walks three situations from public reports through discover and wire, on files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
gpuctl=$PWD/bin/gpuctl
cases=$PWD/internal/cli/testdata/cases

bold=''; dim=''; plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi
title() { printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }
say()   { printf '%s\n' "$1"; }
show() {
  printf '\n%s$ gpuctl %s%s\n' "$dim" "$*" "$plain"
  "$gpuctl" "$@" 2>&1
}

title '1  Everything is healthy, and no VM can use the GPU'
say 'gpu-operator runs, the node serves the H200, and a VM that asks for it is refused:'
say 'KubeVirt has neither the HostDevices gate nor a table entry with the exact name.'
cd "$cases/20-cozystack-default-cr"
show discover --lspci gpu=lspci.txt
say ''
say 'wire plans what is missing, and nothing else. The name is the one the node serves.'
show wire --dry-run -f kubevirt.yaml -f node.yaml

title '2  The card is bound and permitted, and QEMU says "group is not viable"'
say "The card's USB and UCSI functions are still on host drivers, in the GPU's IOMMU group."
cd "$cases/01-titan-rtx-no-developerconfiguration"
show discover --lspci lspci.txt --iommu iommu.tsv
show explain GPU0204

title '3  HyperConverged lists the card under a name that no node serves'
say 'The list is keyed by the selector, and an administrator has disabled the entry:'
say 'gpuctl refuses to overwrite it and names the edit to make.'
cd "$cases/18-hco-enforced-defaults-disabled-flag"
show wire --dry-run -f hyperconverged.yaml -f node.yaml && exit 1
say "(exit code $?)"

title 'Now your own cluster'
say '  kubectl get kubevirt,nodes -A -o yaml > cluster.yaml'
say '  bin/gpuctl wire --dry-run -f cluster.yaml'
