"""What trials cost and bring, in numbers and in words."""

from __future__ import annotations

import pytest

from jobs.rules.tuning.price import Outlook, Price, hours_text, outlook_text, price_text


def test_the_price_of_trials():
    price = Price(10, 4, 1800.0, 7200.0)
    assert (price.usual_hours, price.most_hours) == (20.0, 80.0)
    assert price_text(price) == (
        "10 trials with 4 GPUs each cost about 20 GPU-hours, as such a trial takes 30 min; at most 80."
    )
    assert Price(1, 1, 9000.0, 7200.0).usual_hours == 2.0, "no trial runs longer than its timeout"


def test_the_price_of_trials_that_nobody_knows():
    text = price_text(Price(1, 1, None, 7200.0))
    assert text.startswith(
        "1 trial with 1 GPU each cost at most 2.0 GPU-hours, if each runs to its timeout of 2 h."
    )
    assert text.endswith("How long such a trial takes is not known yet.")
    assert price_text(Price(3, 0, 60.0, 7200.0)) == "3 trials without GPUs cost no GPU-hours."


@pytest.mark.parametrize(
    ("hours", "text"), [(0, "0"), (0.043, "0.043"), (3.44, "3.4"), (42.4, "42"), (12_345.6, "12346")]
)
def test_hours_as_text(hours, text):
    assert hours_text(hours) == text


def test_what_more_trials_bring_in_words():
    outlook = Outlook(10, 0.2312, 0.22491, 0.21, 0.23, "loss")
    assert outlook_text(outlook, Price(10, 2, 3600.0, 7200.0)) == (
        "The model expects 10 more trials to bring loss from 0.2312 to about 0.2249, mostly 0.21 to 0.23. "
        "They cost about 20 GPU-hours."
    )
    none = Outlook(1, 0.2312, 0.23121, 0.21, 0.23, "loss")
    assert outlook_text(none, Price(1, 0, None, 60.0)) == (
        "The model expects 1 more trial to find nothing better than loss 0.2312."
    )
