# Two commands do everything: `make run` and `make test`. The other verbs are parts of them.
.PHONY: run test check style format lint types cover fuzz crash bench real-model docs clean test-as-nobody test-without-bubblewrap

RUN  := .venv
TEST := .venv-test
BIN  := $(TEST)/bin

# What the tests compile is kept apart from the code and from what is installed.
COMPILED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache

# The main job: the server and its console; with ASK="…" it answers that, which no shell and no make reads on the way.
run: export QUESTION = $(value ASK)
run: $(RUN)/.ready
ifdef ASK
	@$(RUN)/bin/apexbridge chat -- "$$QUESTION"
else
	@$(RUN)/bin/apexbridge doctor --short
	@exec $(RUN)/bin/apexbridge serve
endif

# Types are judged beside the tests: that takes one core, and a core would be idle. The first time all
# is imported once before, so that not every worker compiles it.
test: style
	@PYTHONWARNDEFAULTENCODING=1 $(BIN)/coverage erase
	@$(BIN)/pyright --pythonpath $(BIN)/python > build/types.log 2>&1 & types=$$!; \
	  [ -d build/pycache$(CURDIR)/tests ] || \
	    $(COMPILED) $(BIN)/python -m pytest --collect-only -q > build/collect.log 2>&1; \
	  $(COMPILED) PYTHONWARNDEFAULTENCODING=1 $(BIN)/coverage run -m pytest -n 3 --dist worksteal -q $(MEASURE); tests=$$?; \
	  wait $$types; judged=$$?; cat build/types.log; [ $$tests = 0 ] && [ $$judged = 0 ]
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

# Measures also the tests that only run again what others measured, which takes longer.
cover: MEASURE := --measure-all
cover: test
	@$(BIN)/coverage report --show-missing --skip-covered

# The sandbox as an ordinary user meets it, where root runs the tests; needs a mount namespace.
test-as-nobody: $(TEST)/.ready
	@scripts/elsewhere --as-nobody $(BIN)/python -m pytest -n 2 -q -p no:cacheprovider \
	  tests/hostile tests/sandbox tests/contracts tests/activation tests/test_paths.py

# Everything, on a machine that has no bubblewrap and may not install it.
test-without-bubblewrap: $(TEST)/.ready
	@scripts/elsewhere --without-bubblewrap $(BIN)/python -m pytest -n 2 -q -p no:cacheprovider

# The tests with made-up examples, with sixty times as many of them as in `make test`.
fuzz: $(TEST)/.ready
	@$(BIN)/python -m pytest -n 2 -q -p no:cacheprovider -m hypothesis --hypothesis-profile=fuzz

# The same kills as in `make test`, at many more moments; then every system call, which needs strace.
crash: $(TEST)/.ready
	@$(BIN)/python -m tests.crash.exhaustive --only-look
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/crash --rounds 50
	@$(BIN)/python -m tests.crash.exhaustive

bench: $(TEST)/.ready
	@$(BIN)/python -m benchmarks

# A small real language model as the upstream; it is fetched into build/, about 1.1 GB.
real-model: $(TEST)/.ready
	@$(BIN)/python -m scripts.real_model --threads $(or $(THREADS),1) $(if $(ASK),--ask "$(ASK)")

docs: $(TEST)/.ready
	@$(BIN)/python -m scripts.write_reference

clean:
	rm -rf $(RUN) $(TEST) build dist .coverage* .pytest_cache .ruff_cache .hypothesis

# An environment is made anew when what it must hold changes; a second run costs nothing.
$(RUN)/.ready: pyproject.toml retriever/pyproject.toml scripts/environment
	@scripts/environment $(RUN) .

# Commands of the system come beside the packages of Python: neither needs the other. The tests keep
# what they compile elsewhere; those that use packages of Node.js say so where there are none.
$(TEST)/.ready: pyproject.toml retriever/pyproject.toml scripts/environment scripts/system-packages scripts/node-packages
	@scripts/system-packages & system=$$!; \
	  scripts/environment $(TEST) '.[dev]' --no-compile && { scripts/node-packages || true; }; made=$$?; \
	  wait $$system; exit $$made
