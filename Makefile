# tollgate: one command for each thing. Everything made here goes into .build; tools go into ~/.cache/tollgate, once.
#
#   make run [CONFIG=tollgate.yaml]   build tollgate and run it with an Envoy of its own; needs Go and Python
#   make test                         all tests, with real Envoy, Redis, Valkey, PostgreSQL and a model server
#   make check                        format, vet, lint, race, tidy, generated files
#   make bench [BENCH=regexp]         benchmarks
#   make tools                        install what the others need
#   eval "$(make -s env)"             the same for a go test typed by hand

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
# One after the other: each target uses all cores by itself.
.NOTPARALLEL:

export HOME := $(shell .ci/home)
export PATH := $(PATH):/usr/local/go/bin
# The same flags everywhere, so that run, test and bench share what they compile, with a plain `go test` too.
# No VCS stamp: it fails in a clone that another user owns.
export GOFLAGS := -buildvcs=false

CONFIG ?=
BENCH ?= .
# For go test: TESTFLAGS='-run TestName -v'.
TESTFLAGS ?=
# Packages tested at the same time: each may start a Redis, a PostgreSQL and an Envoy.
TESTJOBS ?= 2
TESTLOG ?= .build/test.log
# Every module of this repository, the product's first.
MODULES := . $(patsubst %/go.mod,%,$(wildcard .tools/*/go.mod))
STEP := .ci/step

.PHONY: build run test check bench tools env clean
.PHONY: format vet lint race tidy generated

build: | .build
	@go build -o .build/tollgate ./cmd/tollgate

.build:
	@mkdir -p .build

# exec: signals reach tollgate itself.
run: build
	@envoy="$$(.ci/install envoy)"; \
	TOLLGATE_ENVOY="$$envoy" exec .build/tollgate run $(if $(CONFIG),--config '$(CONFIG)')

test: | .build
	environment="$$(.ci/install env)"; eval "$$environment"; \
	$(STEP) test go test -p $(TESTJOBS) -timeout 15m $(TESTFLAGS) ./... 2>&1 | tee $(TESTLOG)

bench: build
	environment="$$(.ci/install env)"; eval "$$environment"; \
	.build/tollgate bench roundtrips; \
	.build/tollgate bench writes; \
	go test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 -timeout 30m $(TESTFLAGS) ./... 2>&1 | tee .build/bench.txt

check: format vet lint race tidy generated

format:
	$(STEP) format bash -c 'files=$$(gofmt -l .); if [ -n "$$files" ]; then printf "gofmt -w these:\n%s\n" "$$files" >&2; exit 1; fi'

vet:
	$(STEP) vet go vet ./...

lint:
	linter="$$(.ci/install golangci-lint)"; $(STEP) lint "$$linter" run ./...

race:
	.ci/install compiler
	CGO_ENABLED=1 $(STEP) race go test -race -short -timeout 10m $(TESTFLAGS) ./...

tidy:
	$(STEP) tidy bash -c 'for module in $(MODULES); do go -C "$$module" mod tidy -diff || exit 1; done'

generated:
	$(STEP) generated .ci/generated

tools:
	.ci/install envoy >&2
	.ci/install python >&2
	.ci/install valkey >&2
	.ci/install services
	.ci/install compiler
	.ci/install golangci-lint >&2

# Prints nothing but the lines, for eval.
env:
	@.ci/install env

clean:
	rm -rf .build
