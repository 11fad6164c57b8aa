# Virtpod. `make` alone lists what there is.
SHELL := /bin/sh
.DEFAULT_GOAL := help
PY := .venv/bin/python
SOURCES := core protos api controller handler launcher netsetup virtctl local client
CHECKED := $(SOURCES) tests hack examples

.PHONY: help
help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: setup guest ## start virt-local, boot the example VM, show it running
	@hack/run

.PHONY: stop
stop: ## stop what `make run` started (the data stay; `virt-local down --purge` removes them too)
	@.venv/bin/virt-local down

.PHONY: test
test: setup-dev guest ## the whole test suite: check, functional tests with real parts, end-to-end tests with real guests
	@hack/test

.PHONY: test-local
test-local: setup-dev ## virt-local's own tests, which are part of `make test` too
	@hack/test-local

.PHONY: test-faults
test-faults: setup-dev guest ## all accidents of a move, one by one: the search with two at a time, and real guests on two nodes (half an hour)
	@PATH=$(CURDIR)/.venv/bin:$$(dirname $$(hack/kubectl)):$$PATH $(PY) -m pytest -q -m faults tests/unit tests/e2e

.PHONY: test-cluster
test-cluster: setup-dev setup-cluster guest images ## the end-to-end tests on a real Kubernetes: our own, or that of KUBECONFIG
	@hack/test-cluster

.PHONY: test-moves
test-moves: setup-dev guest ## a guest moves between two nodes, ten times there and back, and how long it stood still; VIRTPOD_MOVES says how often
	@PATH=$(CURDIR)/.venv/bin:$$(dirname $$(hack/kubectl)):$$PATH VIRTPOD_MOVES=$${VIRTPOD_MOVES:-20} $(PY) -m pytest -q tests/e2e/test_migration.py

.PHONY: test-debian
test-debian: setup-dev guest debian-guest ## what a genuine Debian sees of its machine; with VIRTPOD_ENGINE=kubernetes on the cluster of KUBECONFIG
	@PATH=$(CURDIR)/.venv/bin:$$(dirname $$(hack/kubectl)):$$PATH $(PY) -m pytest -q tests/debianguest

.PHONY: fresh
fresh: ## README's commands on bare Debian machines made from packages, as CI runs them (needs root; about an hour)
	@.ci/run

.PHONY: bench-cluster
bench-cluster: setup-dev guest ## the rows of the baseline on the cluster of KUBECONFIG, with Virtpod in it
	VIRTPOD_ENGINE=kubernetes $(PY) -m tests.bench.kubernetes

.PHONY: check
check: setup-dev ## format, lint, types, import rules, generated files, unit tests, a short pass of hostile input
	$(PY) -m ruff format --check $(CHECKED)
	$(PY) -m ruff check $(CHECKED)
	$(PY) -m mypy
	$(PY) -m tests.again -n auto --maxprocesses=4 tests/unit tests/rules tests/fuzz

.PHONY: fuzz
fuzz: setup-dev ## made-up hostile input for FUZZ_SECONDS=600, new each time; what breaks something goes to tests/fuzz/corpus
	$(PY) -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),600)

.PHONY: bench
bench: setup-dev guest ## time and memory of a VM against raw QEMU and raw libvirt, API writes, virt-local's own speed
	$(PY) -m tests.bench

.PHONY: generate
generate: setup-dev ## regenerate what is generated: protobuf code, CRDs, the list of what is supported, the chart
	$(PY) hack/generate_protos.py
	$(PY) hack/generate_crds.py
	$(PY) hack/generate_supported.py
	$(PY) hack/generate_chart.py

.PHONY: guest
guest: ## build the test guest's image from Debian packages
	@hack/guest/build .build/guest

.PHONY: debian-guest
debian-guest: setup-cluster ## build a guest that is a genuine Debian, from its packages
	@hack/debianguest/build .build/debian-guest

.PHONY: images
images: setup-dev setup-cluster ## build the four images with docker or buildah, into .build/images; a `make cluster` gets them
	@hack/images/build
	@$(PY) -m tests.cluster load --if-running

.PHONY: images-lock
images-lock: setup-dev setup-cluster ## build the images anew and write down which Debian packages are in them
	@hack/images/build --write-lock

.PHONY: format
format: setup-dev ## format the code
	$(PY) -m ruff format $(CHECKED)
	$(PY) -m ruff check --fix $(CHECKED)

.PHONY: cluster
cluster: setup-dev setup-cluster guest ## start a real Kubernetes on this machine, of NODES=2 nodes (first time: builds it, minutes)
	@hack/kubectl helm >/dev/null
	@$(PY) -m tests.cluster up $(if $(NODES),--nodes $(NODES))

.PHONY: cluster-programs
cluster-programs: setup-dev setup-cluster
	@$(PY) -m tests.cluster build

.PHONY: cluster-down
cluster-down: setup-dev ## end that Kubernetes and remove everything of it
	@$(PY) -m tests.cluster down

.PHONY: setup-cluster
setup-cluster:
	@hack/setup cluster

.PHONY: setup
setup:
	@hack/setup run

.PHONY: setup-dev
setup-dev:
	@hack/setup dev

.PHONY: clean
clean: ## remove the virtualenv and everything built
	rm -rf .venv .build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(SOURCES) tests hack -name __pycache__ -type d -prune -exec rm -rf {} +
