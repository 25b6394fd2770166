"""Guessing passwords is slowed down for each client, and a client is not one of the many addresses that it has."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from console.auth.login import throttle
from console.auth.login.client_network import client_network


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_address_counts_as_its_network(address, network):
    assert client_network(address) == network


@pytest.mark.django_db
def test_other_addresses_of_the_same_ipv6_network_are_slowed_down_too():
    now = timezone.now()
    for number in range(throttle.TRIES_OF_PAIR):
        assert not throttle.attempt("ada", f"2001:db8::{number:x}:1", now + timedelta(seconds=number))
    later = now + timedelta(seconds=30)
    assert throttle.attempt("ada", "2001:db8::ffff", later), "one network has 2^64 addresses"
    assert not throttle.attempt("ada", "2001:db8:0:1::1", later), "another network is another client"
    throttle.succeeded("ada", "2001:db8::9999")
    assert not throttle.attempt("ada", "2001:db8::ffff", later)
