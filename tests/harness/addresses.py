"""Every address of the product, from its own tables of addresses: pages, REST and sockets, filled with example values.

An address whose parameter has no example fails with the name of the parameter, so no new address is forgotten.
"""

from __future__ import annotations

import re

from django.utils.regex_helper import normalize

from console.api.unimplemented import UnknownAddress
from console.api.urls import urlpatterns as rest_urls
from console.consumers.routes import websocket_urlpatterns
from console.parts.registry import PAGES
from console.views.urls import urlpatterns as page_urls

# One word is taken of several that mean the same.
SEVERAL = re.compile(r"\(\?:([\w/]+)(?:\|[\w/]+)+\)")
PARAMETER = re.compile(r"<\w+:(\w+)>")


def pages(values):
    """Name → address of each page and each form."""
    return {each.name: _page(each, values) for each in page_urls}


def rest(values):
    """The addresses for scripts, without those that only say that there is nothing."""
    views = [each for each in rest_urls if each.callback.view_class is not UnknownAddress]
    return [_filled(each, values) for each in views]


def sockets(values):
    """The addresses of sockets; that of live pages once for each of them."""
    known = pages(values)
    found = [_filled(each, values) for each in websocket_urlpatterns if _text(each)]
    lives = [f"/ws/live?at={known[name]}" for name in PAGES]
    return [*(path for path in found if path != "/ws/live"), *lives]


def _page(pattern, values):
    return "/" + PARAMETER.sub(lambda name: _value(pattern, name[1], values), _text(pattern))


def _filled(pattern, values):
    text = _text(pattern)
    while SEVERAL.search(text):
        text = SEVERAL.sub(r"\1", text)
    [(form, names), *_] = normalize(text)
    assert form, f"an address of several forms: {pattern.pattern}"
    return "/" + form % {name: _value(pattern, name, values) for name in names}


def _value(pattern, name, values):
    assert name in values, f"{pattern.pattern}: tests/harness has no example for {name}"
    return str(values[name])


def _text(pattern):
    return str(pattern.pattern)
