"""`kept`: a part of a template that is rendered once for each value of what it depends on. `url`: addresses are kept.

Every page has the frame around it, which is the same for all people but for a few words.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from django import template
from django.template.base import FilterExpression, Node, NodeList, Parser, Token, token_kwargs
from django.template.context import Context
from django.template.defaulttags import URLNode
from django.template.defaulttags import url as do_url
from django.urls import reverse
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString
from django.utils.translation import get_language

register = template.Library()

# A part depends on values of which there are few. If there are more after all, it is rendered anew.
MOST_PARTS = 64
MOST_ADDRESSES = 8192


class KeptPart(Node):
    """What is rendered knows the values that the tag names, and nothing else: no request, and no person. So it can
    show nobody what is somebody else's."""

    def __init__(self, values: dict[str, FilterExpression], nodelist: NodeList) -> None:
        self._values, self.nodelist = values, nodelist
        self._kept: dict[Hashable, SafeString] = {}
        self._lock = threading.Lock()

    def render(self, context: Context) -> SafeString:
        values = {name: value.resolve(context) for name, value in self._values.items()}
        key = (get_language(), *values.values())
        kept = self._kept.get(key)
        return kept if kept is not None else self._render(key, values, context)

    def _render(self, key: Hashable, values: dict[str, Any], context: Context) -> SafeString:
        alone, whole = Context(values), context.template
        assert whole is not None  # it is bound as long as it is rendered
        with alone.render_context.push_state(whole), alone.bind_template(whole):
            rendered = self.nodelist.render(alone)
        with self._lock:
            if len(self._kept) >= MOST_PARTS:
                self._kept.clear()
            self._kept[key] = rendered
        return rendered


@register.tag
def kept(parser: Parser, token: Token) -> KeptPart:
    """`{% kept admin=user.is_superuser %}…{% endkept %}`: its values are hashable, and few."""
    bits = token.split_contents()[1:]
    values = token_kwargs(bits, parser)
    if bits:
        raise template.TemplateSyntaxError(f"“kept” takes name=value only, not {bits[0]}.")
    nodelist = parser.parse(("endkept",))
    parser.delete_first_token()
    return KeptPart(values, nodelist)


class KeptUrl(URLNode):
    """The addresses of pages are the same as long as the process runs. What is unusual is left to Django."""

    def render(self, context: Context) -> str:
        name, args = self.view_name.resolve(context), [value.resolve(context) for value in self.args]
        if not context.autoescape or any(type(arg) not in (int, str) for arg in args):
            return super().render(context)
        return _address(name, *args)


@lru_cache(MOST_ADDRESSES, typed=True)
def _address(name: str, *args: int | str) -> SafeString:
    return conditional_escape(reverse(name, args=args))


@register.tag
def url(parser: Parser, token: Token) -> Node:
    node = do_url(parser, token)
    return node if node.kwargs or node.asvar else KeptUrl(node.view_name, node.args, node.kwargs, node.asvar)
