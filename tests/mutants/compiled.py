"""Safeguards of what is kept of the runner's compiled modules: never other code, never a start that fails."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

TESTS = "tests/unit/agents/runner/test_compiled.py"
READER = "agents/runner/compiled.py"
WRITER = "agents/runner/compiling.py"

COMPILED = (
    Safeguard(
        "compiled-code-is-whole",
        READER,
        "        if hash_of(code) != digest:\n",
        "        if False:\n",
        (f"{TESTS}::test_no_damage_gives_other_code",),
    ),
    Safeguard(
        "compiled-index-is-whole",
        READER,
        "        if hash_of(index) != data[:HEAD]:\n",
        "        if False:\n",
        (f"{TESTS}::test_no_damage_gives_other_code",),
    ),
    Safeguard(
        "compiled-by-this-python-of-this-runner",
        READER,
        " if identity == identity_of(archive.archive) else None",
        "",
        (
            f"{TESTS}::test_each_python_reads_only_what_it_has_made",
            f"{TESTS}::test_the_file_of_another_runner_is_not_read",
        ),
    ),
    Safeguard(
        "compiled-pipe-holds-nobody-up",
        READER,
        " | os.O_NONBLOCK | os.O_CLOEXEC)\n",
        " | os.O_CLOEXEC)\n",
        (f"{TESTS}::test_what_is_no_file_holds_up_no_start",),
    ),
    Safeguard(
        "compiled-from-what-the-name-says",
        WRITER,
        '    if os.path.basename(archive) != hashlib.sha256(data).hexdigest() + ".pyz":\n',
        "    if False:\n",
        (f"{TESTS}::test_an_archive_that_is_not_what_its_name_says_is_not_compiled",),
    ),
    Safeguard(
        "compiled-only-where-there-is-room",
        WRITER,
        "        write_all(fd, bytes(_ROOM * len(data)))\n",
        "",
        (f"{TESTS}::test_on_a_full_disk_nothing_is_compiled_and_nothing_left",),
    ),
    Safeguard(
        "compiled-only-where-a-fork-is-allowed",
        "agents/runner/__main__.py",
        "    except OSError:  # this login may have no more processes, and some modes need none\n",
        "    except ZeroDivisionError:\n",
        (f"{TESTS}::test_a_login_that_may_have_no_more_processes_starts_all_the_same",),
    ),
    Safeguard(
        "compiled-only-where-no-directory-is-in-the-way",
        READER,
        " and not os.path.isdir(file_of(archive))\n",
        "\n",
        (f"{TESTS}::test_a_directory_in_the_way_costs_no_start_a_compilation",),
    ),
    Safeguard(
        "compiled-by-one-process",
        WRITER,
        "        if is_another_at_it(draft, begun):\n",
        "        if False:\n",
        (f"{TESTS}::test_one_that_is_killed_leaves_no_part_under_the_name",),
    ),
    Safeguard(
        "compiled-without-the-channel",
        WRITER,
        '        detach(set(), "trainyard-compile")\n',
        "",
        (f"{TESTS}::test_the_process_that_compiles_holds_no_channel_and_has_a_name",),
    ),
    Safeguard(
        "compiled-anew-after-an-installation",
        "agents/ssh/install_runner.py",
        "            os.unlink(os.path.join(os.path.dirname(name), other))\n",
        "            pass\n",
        (
            "tests/unit/agents/ssh/test_dial.py"
            "::test_installing_the_runner_removes_what_was_compiled_of_it_before",
        ),
    ),
)
