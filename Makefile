# Every target works in a fresh clone, on a machine with python3: it installs what it needs below this directory.
PY := .venv/bin/python
# Without .pyc files each process would take half as long again to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install install-run up test test-slow test-postgres exhaustive quick rooms bench scale walks campaign mutants soak simulate screenshots behaviour programs runner-pythons up-pythons lint client

help:
	@echo "make up       start Trainyard (TRAINYARD_PORT, TRAINYARD_BIND, TRAINYARD_DATA; see README.md)"
	@echo "make install  everything that the other commands need"
	@echo "make test     lint and the tests, but for the slow ones; says which packages of the system they need"
	@echo "make test-slow  the tests with the mark slow: long faults, campaigns, walks, Google's old SDK; unit tests on PostgreSQL (PART=1/3)"
	@echo "make test-postgres  all unit tests that need a database, on PostgreSQL (TESTS=\"tests/unit/console/views -k jobs\")"
	@echo "make exhaustive  the further variants of tests of which make test and make test-slow run one each"
	@echo "make quick    the inner loop of 2 minutes: ruff, the laws, and the tests without hosts that are nearest to your change (TRAINYARD_QUICK_S=60)"
	@echo "make lint     ruff, mypy, djlint, migrations, the laws of the code"
	@echo "make client   the command line client as a wheel, in var/client; consoles serve it too"
	@echo "make rooms    draw docs/rooms.md again, from the imports"
	@echo "make bench    the measurements of tests/bench/README.md (PARTS=\"first-line shell\")"
	@echo "make scale    100,000 jobs, 1,000 hosts, 8,000 GPUs: the time, queries and bytes of every page (SCALE=\"--database sqlite\")"
	@echo "make walks    a new admin, a researcher, a viewer and an operator in light and dark, 1280 and 360 px, two languages; pictures in var/walks (WALKS=\"dark-360-pt-br\")"
	@echo "make programs  train with torch 2, Lightning, Accelerate, DeepSpeed, JAX, TensorFlow and MPI on test hosts; installs 3 GB below var/"
	@echo "make runner-pythons  the tests of the runner, and of whole hosts, with other Pythons (PYTHONS=\"3.7 3.8 3.13\")"
	@echo "make up-pythons  make up in a fresh clone with each Python that Trainyard promises (PYTHONS=\"3.11 3.13\")"
	@echo "make behaviour  write docs/behaviour.md, the statements of the service's documents and their tests, and docs/vertex.md, each field of Google's messages"
	@echo "make simulate a month of jobs by the scheduler's rules, drawn into docs/scheduling.svg"
	@echo "make screenshots  take the pictures of the README again, with jobs on test hosts"
	@echo "make campaign the seeded fault campaign, longer than in make test-slow (CAMPAIGN_S=600 SEED=)"
	@echo "make mutants  take out each safeguard of tests/mutants/safeguards.py in turn; its tests must miss it (NAMES=\"...\")"
	@echo "make soak     ten minutes of jobs, viewers and faults at once: nothing is lost, nothing grows (SOAK_S=600 SEED=)"

install:
	@tools/install all

install-run:
	@tools/install run

up: install-run
	@exec .venv/bin/trainyard up

test: install
	@tools/install-test-packages
	@tools/lint --without-laws
	@tools/with-hosts $(PY) tools/run-tests

test-slow: install
	@tools/install-test-packages
	@tools/install-old-sdk
	@TRAINYARD_TEST_PART=$(PART) tools/with-hosts $(PY) tools/run-tests --slow

test-postgres: install
	@tools/install-test-packages
	@tools/with-hosts $(PY) tools/run-tests --postgresql $(TESTS)

quick: install
	@tools/install-test-packages
	@$(PY) tools/quick

lint: install
	@tools/lint

rooms: install
	@$(PY) -m tests.architecture.rooms

client:
	@mkdir -p var/client
	@cd var/client && python3 ../../console/client/build_wheel.py

bench: install
	@tools/install-test-packages bench
	@tools/with-hosts $(PY) -m tests.bench $(PARTS)

scale: install
	@tools/install-test-packages
	@$(PY) -m tests.scale $(SCALE)

exhaustive: install
	@tools/install-test-packages
	@EXHAUSTIVE=1 tools/with-hosts $(PY) -m pytest -q -m exhaustive tests

walks: install
	@tools/install-test-packages
	@WALKS="$(or $(WALKS),all)" tools/with-hosts $(PY) -m pytest -q tests/walks

simulate: install
	@$(PY) -m tests.bench.simulate --plot docs/scheduling.svg

screenshots: install
	@tools/install-test-packages
	@$(PY) -m tests.browser.screenshots

campaign: install
	@tools/install-test-packages
	@CAMPAIGN_S=$(or $(CAMPAIGN_S),600) SEED=$(SEED) tools/with-hosts $(PY) -m pytest -q -s --timeout 0 tests/flows/test_campaign.py

mutants: install
	@tools/install-test-packages
	@$(PY) -m tests.mutants $(NAMES)

soak: install
	@tools/install-test-packages
	@SOAK_S=$(or $(SOAK_S),600) SEED=$(SEED) tools/with-hosts $(PY) -m pytest -q -s --timeout 0 tests/flows/test_soak.py

behaviour: install
	@$(PY) -m tests.behaviour.page
	@$(PY) -m tests.behaviour.vertex_page

programs: install
	@tools/install-test-packages
	@tools/install-frameworks
	@PROGRAMS=1 tools/with-hosts $(PY) -m pytest -q tests/behaviour/test_frameworks.py tests/behaviour/test_frameworks_in_containers.py

runner-pythons: install
	@tools/install-test-packages
	@tools/runner-pythons $(PYTHONS)

up-pythons:
	@tools/up-pythons $(PYTHONS)
