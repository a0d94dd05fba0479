#!/usr/bin/env bash
# Makes the pictures of the README out of what a real terminal showed: the golden
# files that TestTerminal keeps.
set -euo pipefail
cd "$(dirname "$0")/.."
freeze="go run github.com/charmbracelet/freeze@v0.2.2"
for name in status diagnose-busy; do
	sed '/^--- exit code/d' "internal/cli/testdata/golden/terminal-$name-120.golden" |
		$freeze --language ansi --font.family monospace --font.size 13 --padding 16 --border.radius 6 -o "docs/images/$name.svg"
done
