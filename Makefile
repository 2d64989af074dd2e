# make lab    opens the course in JupyterLab          make test       runs its tests
# make help   lists the rest. Each target installs what it needs into .venv first.
#
# PYTHON=python3.12     the interpreter .venv is made with
# ACTIVE=1              use the active environment (conda, say) and install nothing
# TORCH_INDEX=URL       another package index for torch, such as PyTorch's index of CPU builds
# ARGS="--no-browser"   further arguments for JupyterLab or pytest
# OVERWRITE=1           let `make notebooks` and `make solutions` replace changed files

PYTHON ?= python3
VENV := .venv
ARGS ?=
BIN := $(if $(ACTIVE),,$(VENV)/bin/)
PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	--constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PYTEST := $(BIN)python -m pytest
NOTEBOOK_TESTS := --nbval --nbval-current-env -n 2 --dist loadfile
NEWS := "@jupyterlab/apputils-extension:announcements"
TOOL_FLAGS := $(if $(OVERWRITE),--overwrite)

.PHONY: help lab test test-all notebooks solutions bench bench-long lint clean
.DEFAULT_GOAL := help

help:
	@echo "make lab        open the course in JupyterLab"
	@echo "make test       run the tests and every notebook, and compare what they print"
	@echo "make test-all   the same with the slow checks and three generations of CPU"
	@echo "make notebooks  execute every lesson again and save its outputs"
	@echo "make solutions  build the solved edition in solutions/"
	@echo "make bench      measure how fast the layer is, beside others and the limit (6 minutes)"
	@echo "make bench-long measure decoding with a cache and attention in blocks (3 minutes)"
	@echo "make lint       check the style of code and notebooks"
	@echo "make clean      remove .venv and the caches"

# JupyterLab refuses to run as root, which containers often do, unless it is told to.
lab: $(if $(ACTIVE),,$(VENV)/lab.installed)
	@echo "Opening the course in JupyterLab. Press Ctrl-C twice here to stop it."
	$(BIN)jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) \
		--LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate \
		--ServerApp.root_dir=. $(ARGS) notebooks/00_start_here.ipynb

test: $(if $(ACTIVE),,$(VENV)/test.installed)
	@echo "Running the tests and every notebook."
	$(PYTEST) tests notebooks $(NOTEBOOK_TESTS) -m "not thorough" $(ARGS)

test-all: $(if $(ACTIVE),,$(VENV)/browser.installed)
	@echo "Running every test, and the notebooks as on three generations of CPU."
	$(PYTEST) tests notebooks $(NOTEBOOK_TESTS) $(ARGS)
	ATEN_CPU_CAPABILITY=avx2 $(PYTEST) notebooks $(NOTEBOOK_TESTS) $(ARGS)
	ATEN_CPU_CAPABILITY=default $(PYTEST) notebooks $(NOTEBOOK_TESTS) $(ARGS)

notebooks: $(if $(ACTIVE),,$(VENV)/test.installed)
	$(BIN)python tools/notebooks.py execute $(TOOL_FLAGS) $(ARGS)

solutions: $(if $(ACTIVE),,$(VENV)/test.installed)
	$(BIN)python tools/notebooks.py solutions $(TOOL_FLAGS) $(ARGS)

bench: $(if $(ACTIVE),,$(VENV)/test.installed)
	@echo "Measuring. Leave the machine alone for about six minutes."
	$(BIN)python -m benchmarks.attention $(ARGS)

bench-long: $(if $(ACTIVE),,$(VENV)/test.installed)
	@echo "Measuring. Leave the machine alone for about three minutes."
	$(BIN)python -m benchmarks.long_inputs $(ARGS)

lint: $(if $(ACTIVE),,$(VENV)/test.installed)
	$(BIN)ruff check .
	$(BIN)ruff format --check .
	$(BIN)codespell

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
	echo "No '$(PYTHON)' was found. Install Python 3.11 or newer,"; \
	echo "or name the one you have: make lab PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "The course needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	echo "Install a newer one, or name it: make lab PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	echo "'$(PYTHON)' has no venv module, which makes the environment. On Debian and Ubuntu:"; \
	echo "sudo apt install python3-venv     (then run make again)"; exit 1; }
	@echo "Making the environment $(VENV) with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv $(VENV)

# $(call install,EXTRAS,SIZE). JupyterLab's question about news is switched off as well.
define install
	@echo "Installing the packages of the course into $(VENV), about $(2). This takes some minutes."
	@$(PIP_INSTALL) --editable '.[$(1)]'
	@$(BIN)jupyter labextension disable $(NEWS) >/dev/null 2>&1
	@touch $@
endef
comma := ,

$(VENV)/lab.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(call install,course,1.8 GB)

$(VENV)/test.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(call install,course$(comma)test,1.9 GB)

$(VENV)/browser.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(call install,course$(comma)test$(comma)browser,2.0 GB)
