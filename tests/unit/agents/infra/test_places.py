"""Places for work that waits for somebody else: a share has no more than it leaves free, and nobody waits for one."""

from __future__ import annotations

import pytest

from agents.infra.places import AllTaken, Places


def test_a_share_leaves_as_many_places_as_it_takes():
    places = Places(4)
    places.take("a")
    places.take("a")
    with pytest.raises(AllTaken):
        places.take("a")
    with places.place("b"):
        assert places.total() == 3
        with pytest.raises(AllTaken):
            places.take("b")
    places.give_back("a")
    places.take("a")
    assert places.total() == 2


def test_a_share_may_have_a_limit_of_its_own():
    places = Places(4, each=1)
    with places.place("a"):
        with pytest.raises(AllTaken):
            places.take("a")
        places.take("b")
    places.take("a")
    assert places.total() == 2


def test_a_place_is_given_back_whatever_happens():
    places = Places(2)
    with pytest.raises(ZeroDivisionError), places.place("a"):
        raise ZeroDivisionError
    assert places.total() == 0
