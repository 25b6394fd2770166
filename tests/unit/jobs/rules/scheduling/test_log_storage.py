"""The levels of stored logs, and what people read at each."""

from __future__ import annotations

import pytest

from jobs.rules.scheduling.log_storage import held_text, level_of, text
from jobs.rules.scheduling.quota import GB


@pytest.mark.parametrize(
    ("percent", "before", "level"),
    [
        (0, 0, 0),
        (79.99, 0, 0),
        (80, 0, 80),
        (94.99, 80, 80),
        (95, 80, 95),
        (100, 95, 100),
        (124.99, 100, 100),
        (125, 100, 125),
        # Logs that were deleted: a level is left a little below it, so that nobody is told again and again.
        (79, 80, 80),
        (77.99, 80, 0),
        (94, 95, 95),
        (92.99, 95, 80),
        # Storing goes on as soon as there is room.
        (124.99, 125, 100),
        (50, 125, 0),
    ],
)
def test_a_level_is_told_once_on_the_way_up_and_left_a_little_below(percent, before, level):
    assert level_of(int(percent * GB / 100), 1.0, before) == level


def test_a_limit_of_zero_stores_nothing():
    assert level_of(0, 0.0) == 125


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (0, ""),
        (80, "take 0.80 GB of 1 GB. At the limit it takes no new jobs. Delete jobs that are over"),
        (95, "At the limit it takes no new jobs"),
        (100, "It takes no new jobs. Running jobs go on, and their logs are stored up to 1.25 GB."),
        (125, "Nothing more of them is stored. The hosts keep the rest"),
    ],
)
def test_each_level_says_what_follows_and_the_cure(level, words):
    told = text("vision", level, 8 * GB // 10, 1.0)
    assert words in told and bool(told) == bool(level)


def test_a_held_log_says_at_which_byte_it_stopped():
    assert held_text("vision", 2 * GB, 1.5, 4096).startswith(
        "Storing stopped at byte 4096: the logs of project vision take 2.00 GB, and it may store 1.5 GB."
    )
