"""Safeguards of Python packages in images, and of Pythons of hosts that stand for images."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

PACKAGES = "tests/unit/agents/runner/runtimes/test_packages.py"
ALIASES = "tests/unit/jobs/rules/spec/test_image_aliases.py"

PACKAGES_IN_IMAGES = (
    Safeguard(
        "packages-of-an-image-that-others-use",
        "agents/runner/runtimes/packages.py",
        "        copy_tree(cache.path(TREES, key), os.path.join(place, FILES))\n",
        '        __import__("shutil").copytree(\n'
        "            cache.path(TREES, key), os.path.join(place, FILES), copy_function=os.link\n"
        "        )\n",
        (f"{PACKAGES}::test_what_is_installed_cannot_change_the_packages_of_others",),
    ),
    Safeguard(
        "password-of-the-index-for-the-program",
        "agents/runner/runtimes/install_packages.py",
        "    os.unlink(path)\n",
        "",
        (f"{PACKAGES}::test_a_password_of_the_index_is_in_no_log_and_not_there_for_the_program",),
    ),
    Safeguard(
        "password-of-the-index-in-the-log",
        "agents/runner/runtimes/install_packages.py",
        'line.replace(secret, b"*" * len(secret))',
        "line",
        (f"{PACKAGES}::test_what_is_secret_is_not_printed",),
    ),
    Safeguard(
        "packages-of-a-run-that-is-over",
        "agents/runner/files.py",
        "        delete_tree(os.path.join(directory, PACKAGES))\n",
        "        pass\n",
        (f"{PACKAGES}::test_the_python_of_the_image_installs_the_packages_and_runs_their_module",),
    ),
    Safeguard(
        "python-that-is-not-on-the-host",
        "agents/runner/runs/held_resources.py",
        "if path and not run_with_timeout(act, STORAGE_S):",
        "if False:",
        ("tests/unit/agents/runner/test_code.py::test_a_command_finds_the_python_that_its_location_names",),
    ),
    Safeguard(
        "python-that-is-found-after-that-of-the-host",
        "agents/runner/runs/orders.py",
        'os.path.dirname(program) + ":" + env.get("PATH", os.defpath)',
        'env.get("PATH", os.defpath) + ":" + os.path.dirname(program)',
        (
            "tests/unit/agents/runner/test_code.py::test_a_command_finds_the_python_that_its_location_names",
            "tests/unit/agents/runner/runtimes/test_reducer_python.py::"
            "test_the_directory_of_the_python_that_stands_for_an_image_comes_first",
        ),
    ),
    Safeguard(
        "path-with-a-slip-that-is-an-image",
        "jobs/rules/spec/image_aliases.py",
        "if image.startswith(HOST_WITH):",
        "if interpreter_of(image):",
        (f"{ALIASES}::test_what_an_alias_may_stand_for",),
    ),
    Safeguard(
        "environment-of-another-python",
        "jobs/preparations/brought.py",
        "own = [interpreter] if interpreter else []",
        "own: list[str] = []",
        (
            "tests/unit/jobs/maintenance/test_location_images.py::"
            "test_packages_run_with_another_python_of_the_host",
        ),
    ),
)
