#!/usr/bin/env bash
# Prints the id of a git tree that holds the working tree as it is now,
# untracked files included. Neither the index nor a branch changes.
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GIT_INDEX_FILE=$scratch/index
git add --all
git write-tree
