# Needs Go, make and git; test, race and chaos also a C compiler. All other tools are
# pinned in tools/go.mod and built from source on first use.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The same flags for every build and test: other ones compile everything anew.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath -buildvcs=%,$(GOFLAGS)) -trimpath -buildvcs=false)

VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
LDFLAGS := -s -w -X github.com/gpuctl/gpuctl/internal/cli.version=$(VERSION)

MODULES  := . tools test/bench/kubectl test/cluster/controlplane test/cluster/kubevirt
FUZZTIME ?= 10s
CHAOSTIME ?= 10m
PAUSES ?= 100
# Each starts a control plane or two: one after the other.
ON_CLUSTER := ./internal/attach ./internal/bind ./test/api/... ./test/cluster/... ./test/pause ./test/e2e/... ./test/demo/...

LINTER    := go tool -modfile=tools/go.mod golangci-lint
GOTESTSUM := go tool -modfile=tools/go.mod gotestsum
# Not in tools/go.mod: it brings hundreds of modules, and only a release needs it.
GORELEASER := go run github.com/goreleaser/goreleaser/v2@v2.15.1
CONTROLLER_GEN := go tool -modfile=tools/go.mod controller-gen
HELM_DOCS := go tool -modfile=tools/go.mod helm-docs

# What writes generated files, one command a line.
define GENERATORS
go run ./hack/gennames
go run ./hack/gendocs
$(CONTROLLER_GEN) object paths=./api/... crd output:crd:dir=charts/gpu-operator-hooks/files/crds
$(HELM_DOCS) --chart-search-root charts --chart-to-generate charts/gpu-operator-hooks,charts/gpu-vm --log-level error
endef

##@ Use

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z0-9-]*:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/gpuctl
	@go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/gpuctl

.PHONY: demo
demo: build cluster ## Show on a real cluster how a stuck VM gets its GPU
	@go test -c -o bin/demo.test ./test/demo
	@cd test/demo && GPUCTL_DEMO=1 ../../bin/demo.test -test.run '^TestDemo$$' | grep -v '^PASS$$'
	@rm -f bin/demo.test

.PHONY: cluster
cluster: ## Build what the test cluster consists of; takes minutes, once
	@go run ./test/cluster/up -build

.PHONY: pictures
pictures: ## Make the README's pictures from what a terminal showed
	@GOFLAGS= hack/pictures.sh

.PHONY: snapshot
snapshot: ## Build a release's archives into dist, and publish nothing
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean --skip=ko,sbom,sign

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin dist dist-completions

##@ Check

.PHONY: fmt
fmt: ## Format the code
	$(LINTER) fmt

.PHONY: lint
lint: ## Lint the code
	$(LINTER) run ./...

.PHONY: test
test: cluster ## Run all tests; the last line counts them
	@$(GOTESTSUM) --format pkgname --format-hide-empty-pkg --hide-summary=skipped --jsonfile "$$(mktemp -t gpuctl-test.XXXXXX)" \
		--post-run-command hack/count-tests.sh --raw-command -- hack/test-json.sh

.PHONY: e2e
e2e: cluster ## Run only the tests on a real control plane; they are part of test
	go test -p 1 $(ON_CLUSTER)

.PHONY: race
race: export CGO_ENABLED := 1
race: ## Run the tests under the race detector
	go test -race ./...

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	@list=$$(go test -list '^Fuzz' ./...) || { echo "$$list"; exit 1; }; \
	awk '/^Fuzz/ {target[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, target[i]; n = 0}' <<<"$$list" \
	| while read -r pkg target; do go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg"; done

.PHONY: chaos
chaos: export CGO_ENABLED := 1
chaos: cluster ## Kill and pause leaders under load for CHAOSTIME (10m), under the race detector; stop real processes PAUSES (100) times; race 200 VMs for 100 GPUs
	GPUCTL_CHAOS=$(CHAOSTIME) go test -race -v -count=1 -timeout 40m -run '^TestChaos$$' ./internal/bind
	CGO_ENABLED=0 GPUCTL_PAUSES=$(PAUSES) go test -v -count=1 -timeout 40m ./test/pause
	CGO_ENABLED=0 GPUCTL_RACE=full go test -v -count=1 -timeout 40m -run '^TestRace$$' ./test/e2e

.PHONY: bench
bench: build ## Run the benchmarks, and time whole commands against others
	go test -run '^$$' -bench . -benchmem ./...
	go run ./test/bench -gpuctl bin/gpuctl
	go run ./test/bench/status -gpuctl bin/gpuctl
	go run ./test/bench/orders

.PHONY: bench-idle
bench-idle: build cluster ## Count what the controller writes where nothing happens
	go run ./test/bench/idle -gpuctl bin/gpuctl

.PHONY: bench-webhook
bench-webhook: build cluster ## Compare what judging an order takes beside 10,000 devices and beside none
	go run ./test/bench/orders webhook -gpuctl bin/gpuctl

.PHONY: bench-starts
bench-starts: build cluster ## Compare starts of VMs with devices with those of others, empty, beside 10,000 devices and beside VMs that are refused, and count what they write
	go run ./test/bench/orders starts -gpuctl bin/gpuctl
	go test -run '^$$' -bench . -benchtime 1x -v -timeout 40m ./test/bench/starts -gpuctl $(CURDIR)/bin/gpuctl

.PHONY: bench-memory
bench-memory: build cluster ## Fill a large cluster, and see what memory its leader needs
	go run ./test/bench/orders memory -gpuctl bin/gpuctl

##@ Generate

.PHONY: generate
generate: ## Write the generated files
	$(GENERATORS)

.PHONY: verify
verify: ## Fail if generated files or go.mod files are out of date
	for m in $(MODULES); do go -C "$$m" mod tidy -diff; done
	@before=$$(hack/tree-id.sh); $(MAKE) generate; after=$$(hack/tree-id.sh); \
		git diff --stat --patch --exit-code "$$before" "$$after" || { echo "verify: out of date; run make generate" >&2; exit 1; }
