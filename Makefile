# Two commands do everything: `make run` and `make test`. The other verbs are parts of them.
.PHONY: run test check style format lint types cover fuzz crash bench real-model docs lock release-check \
  test-training test-public test-as-nobody test-without-bubblewrap clean

RUN   := .venv
TEST  := .venv-test
TRAIN := .venv-train
BIN   := $(TEST)/bin

# Bytecode of the tests goes to build/, apart from the sources and the installed packages.
COMPILED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache

# The main job: the server with its console; ASK="…" asks one question instead. The question is passed
# through the environment, so that neither make nor the shell expands it.
run: export QUESTION = $(value ASK)
run: $(RUN)/.ready
ifdef ASK
	@$(RUN)/bin/apexbridge chat -- "$$QUESTION"
else
	@$(RUN)/bin/apexbridge doctor --short
	@exec $(RUN)/bin/apexbridge serve
endif

# Pyright runs beside the tests: it needs one core, and one would be idle. Before the first run the tests
# are collected once, so that not every worker compiles everything.
test: style
	@PYTHONWARNDEFAULTENCODING=1 $(BIN)/coverage erase
	@$(BIN)/pyright --pythonpath $(BIN)/python > build/types.log 2>&1 & types=$$!; \
	  [ -d build/pycache$(CURDIR)/tests ] || \
	    $(COMPILED) $(BIN)/python -m pytest --collect-only -q > build/collect.log 2>&1; \
	  $(COMPILED) PYTHONWARNDEFAULTENCODING=1 $(BIN)/coverage run -m pytest -n 3 --dist worksteal -q $(MEASURE); tests=$$?; \
	  wait $$types; typed=$$?; cat build/types.log; [ $$tests = 0 ] && [ $$typed = 0 ]
	@$(BIN)/coverage combine --quiet
	@$(BIN)/python scripts/check_coverage.py

check: style types

style: $(TEST)/.ready
	@$(BIN)/ruff format --check --quiet . && echo "format ok"
	@$(BIN)/ruff check --quiet . && echo "lint ok"
	@$(BIN)/lint-imports --no-cache > build/imports.log 2>&1 && grep -E '^Contracts' build/imports.log || { cat build/imports.log; exit 1; }

format: $(TEST)/.ready
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

lint: $(TEST)/.ready
	@$(BIN)/ruff check . && $(BIN)/lint-imports --no-cache

types: $(TEST)/.ready
	@$(BIN)/pyright --pythonpath $(BIN)/python

# Measures coverage in the slow tests too, which only repeat lines that other tests measure.
cover: MEASURE := --measure-all
cover: test
	@$(BIN)/coverage report --show-missing --skip-covered

# The sandbox under an ordinary user, where root runs the tests; needs a mount namespace.
test-as-nobody: $(TEST)/.ready
	@scripts/elsewhere --as-nobody $(BIN)/python -m pytest -n 2 -q -p no:cacheprovider \
	  tests/hostile tests/sandbox tests/contracts tests/activation tests/test_paths.py

# All tests on a machine without bubblewrap.
test-without-bubblewrap: $(TEST)/.ready
	@scripts/elsewhere --without-bubblewrap $(BIN)/python -m pytest -n 2 -q -p no:cacheprovider

# A whole training course on small data; run it when training/ changes. Its environment has PyTorch.
test-training: $(TRAIN)/.ready
	@$(TRAIN)/bin/pyright --pythonpath $(TRAIN)/bin/python training
	@$(TRAIN)/bin/python -m pytest -q -p no:cacheprovider training/tests

# The property-based tests with sixty times as many examples as in `make test`.
fuzz: $(TEST)/.ready
	@$(BIN)/python -m pytest -n 2 -q -p no:cacheprovider -m hypothesis --hypothesis-profile=fuzz

# Crash tests: kill -9 at many more moments than in `make test`, then at every system call (needs strace).
crash: $(TEST)/.ready
	@$(BIN)/python -m tests.crash.exhaustive --only-look
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/crash --rounds 50
	@$(BIN)/python -m tests.crash.exhaustive

bench: $(TEST)/.ready
	@$(BIN)/python -m benchmarks

# A small real language model as the upstream; it is downloaded into build/, about 1.1 GB.
real-model: $(TEST)/.ready
	@$(BIN)/python -m scripts.real_model --threads $(or $(THREADS),1) $(if $(ASK),--ask "$(ASK)")

# Real public skills: install, build dependencies, start scripts. Fetches repositories, about 1 GB;
# FROM= uses a folder of clones instead.
test-public: $(TEST)/.ready
	@$(BIN)/python -m scripts.public_skills $(if $(FROM),--from "$(FROM)")

docs: $(TEST)/.ready
	@$(BIN)/python -m scripts.write_reference

# Renews the locked versions of everything but the training environment.
lock: $(TEST)/.ready
	@scripts/lock

# Builds both distributions and tries the wheels in an empty environment; docs/releasing.md.
release-check: $(TEST)/.ready
	@$(BIN)/python -m scripts.release_check

clean:
	rm -rf $(RUN) $(TEST) $(TRAIN) build dist .coverage* .pytest_cache .ruff_cache .hypothesis

# An environment is rebuilt when what it must hold changes; otherwise a second run costs nothing.
LOCKED := pyproject.toml requirements.lock retriever/pyproject.toml scripts/environment

$(RUN)/.ready: $(LOCKED)
	@scripts/environment $(RUN)

# System packages are installed beside the Python packages: neither needs the other. Tests that need
# packages of Node.js are skipped, and say so, where those could not be installed.
$(TEST)/.ready: $(LOCKED) scripts/system-packages scripts/node-packages
	@scripts/system-packages & system=$$!; \
	  scripts/environment $(TEST) --no-compile test e2e && { scripts/node-packages || true; }; made=$$?; \
	  wait $$system; exit $$made

$(TRAIN)/.ready: $(LOCKED)
	@scripts/environment $(TRAIN) --no-compile test train
