# `make demo` and `make test` set up everything that they need.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN = .venv/bin/python -m
INSTALLED = .venv/.installed
TESTS = not interop and not conformance and not attack and not browser
# Each program that a test starts would be compiled anew, at twice its time.
unexport PYTHONDONTWRITEBYTECODE
MUTMUT = .venv/bin/mutmut
PACKAGING = .venv/.packaging
AXE = .browser/node_modules/axe-core/axe.min.js
AXE_PACKAGE = axe-core@4.14.1

.PHONY: demo test attack check types style collected format install interop faults browser screenshots conformance behaviour docs tools keys grid fuzz soak bench bench-quick flame \
	retrieval tokens mutants package package-check service-check image-check constraints clean

demo: $(INSTALLED)
	$(RUN) toolgate demo $(if $(ONCE),--once)

# Three, since a test that waits for what it has started leaves its processor to others.
test: $(INSTALLED)
	@$(MAKE) -j 2 check collected
	$(RUN) pytest -n 3 --dist worksteal -m "$(TESTS)"

check: types style

types: $(INSTALLED)
	$(RUN) pyright

style: $(INSTALLED)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	.venv/bin/lint-imports --no-cache --no-logo
	.venv/bin/python tests/architecture/rules.py

# All tests can be read, and are compiled once, while the type checker has the other processor.
collected: $(INSTALLED)
	@mkdir -p build
	@$(RUN) pytest --collect-only -q -m "$(TESTS)" > build/collected || { tail -n 100 build/collected; exit 1; }

format: $(INSTALLED)
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "toolgate needs Python 3.11 or newer; name one with PYTHON=..."; exit 1; }
	@echo "Setting up .venv: about half a minute, once."
	$(PYTHON) -m venv .venv
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	@touch $(INSTALLED)

interop: $(INSTALLED)
	.venv/bin/python tests/interop/install.py
	$(RUN) pytest -n 2 --dist loadscope -m interop tests/interop

# Every attack that was found, in its long form too.
attack: $(INSTALLED)
	$(RUN) pytest -n 2 --dist worksteal tests/attack

# Calls through servers that fail in every way: what they are told, against what was run. FAULT_CALLS says how many.
# And a gateway that is killed a hundred times while it writes tasks.
faults: $(INSTALLED)
	PYTHONPATH=tests $(RUN) processes.faults
	KILLS=100 $(RUN) pytest tests/processes/test_tasks_survive_kills.py

# The operator's pages in the Chromium of the system, judged by axe-core.
browser: $(INSTALLED) $(AXE)
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	$(RUN) pytest -m browser tests/chromium

# The pictures of the documentation, made anew.
screenshots: $(INSTALLED)
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	SCREENSHOTS=docs/pictures $(RUN) pytest -m browser -k pictured tests/chromium/test_screenshots.py

$(AXE):
	npm install --prefix .browser --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error $(AXE_PACKAGE)

conformance: $(INSTALLED)
	.venv/bin/python tests/conformance/install.py
	$(RUN) pytest -m conformance tests/conformance

behaviour: $(INSTALLED)
	.venv/bin/python tests/behaviour/table.py

# The site of the pages, in build/site. Read it with: python3 -m http.server -d build/site
docs: $(INSTALLED)
	.venv/bin/python docs/make_site.py build/site

# docs/tools.md and docs/cli.md, from the code.
tools: $(INSTALLED)
	.venv/bin/python docs/make_tools.py
	.venv/bin/python docs/make_cli.py

# docs/configuration-keys.md and docs/toolgate.schema.json, from the fields.
keys: $(INSTALLED)
	.venv/bin/python docs/make_configuration.py

grid: $(INSTALLED)
	PYTHONPATH=tests $(RUN) bridge.grid

# Everything at once, for SOAK_SECONDS (900), and what is left of it five minutes after all have left. SOAK_WORKERS=2 has
# two processes take the connections, and kills these too.
soak: $(INSTALLED)
	PYTHONPATH=tests .venv/bin/python tests/soak/soak.py

# FUZZ_SECONDS says how long, FUZZ_SEED from which seed; with FUZZ_STEPS that one conversation is held again, aloud.
fuzz: $(INSTALLED)
	.venv/bin/python -W error tests/properties/test_any_conversation.py

# Beside nginx and other gateways, in under two minutes. `.venv/bin/python bench/peers.py --install` gets them once.
bench-quick: $(INSTALLED)
	.venv/bin/python bench/peers.py --quick

bench: $(INSTALLED)
	.venv/bin/python bench/peers.py
	.venv/bin/python bench/large.py
	.venv/bin/python bench/call_cost.py
	.venv/bin/python bench/startup.py
	.venv/bin/python bench/fairness.py
	.venv/bin/python bench/paired.py $(if $(BASE),--base $(BASE))

# Where the CPU of a warm call goes: a flame graph and a table, in .bench/results.
flame: $(INSTALLED)
	.venv/bin/python bench/flame.py

# Another directory of sets: make retrieval DATA=dir
retrieval: $(INSTALLED)
	.venv/bin/python bench/retrieval.py $(DATA) $(if $(MODEL),--model $(MODEL))

# What a model reads of 50, 250 and 500 real tools, by each way to them. The set `livemcpbench` of the same directory.
tokens: $(INSTALLED)
	.venv/bin/python bench/tokens.py $(DATA) $(if $(EXACT),--exact $(EXACT))

# Small mistakes in what decides, one at a time: does a test notice each? About half an hour; MODULES names some of them,
# such as auth/keys.py.
mutants: $(MUTMUT)
	.venv/bin/python tests/architecture/mutants.py $(MODULES)

$(MUTMUT): $(INSTALLED)
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[mutants]"
	@touch $(MUTMUT)

# The wheel and the sdist, built twice and the same, and their bill of materials, in dist.
package: $(PACKAGING)
	.venv/bin/python packaging/build.py

# What a newcomer does with the wheel alone, from its installation to the first call.
package-check: package
	.venv/bin/python packaging/check.py

# The unit of `toolgate systemd`, run by a systemd in namespaces of its own. Needs root.
service-check: package
	.venv/bin/python packaging/check_service.py

# The image, built and run as compose.yaml says, by Docker or Podman. BUILD='--network host' and the like go to the build.
image-check: package
	.venv/bin/python packaging/check_image.py

$(PACKAGING): $(INSTALLED)
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[package]"
	@touch $(PACKAGING)

constraints:
	rm -rf .venv && $(PYTHON) -m venv .venv
	$(RUN) pip install --quiet -e ".[test,mutants,package]"
	{ echo "# Versions that the tests ran with; made by 'make constraints'."; \
	  $(RUN) pip freeze --exclude-editable --exclude toolgate; } > constraints.txt

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
