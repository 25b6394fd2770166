"""`translate` and `blocktranslate` that keep what was translated: a table says the same words in each of its rows.

Django asks the catalogue each time, which is half of the time of a page with a long table.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template.base import Node, Parser, Token, render_value_in_context
from django.template.context import Context
from django.templatetags.i18n import BlockTranslateNode, TranslateNode, do_block_translate, do_translate
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext

register = template.Library()


class KeptText(Node):
    """A text without variables is the same in each row and on each page of a language."""

    child_nodelists = ()

    def __init__(self, node: Node) -> None:
        self._node = node
        self._kept: dict[str | None, SafeString] = {}

    def render(self, context: Context) -> SafeString:
        language = get_language()
        if language not in self._kept:
            self._kept[language] = SafeString(self._node.render(context))
        return self._kept[language]


class KeptBlock(BlockTranslateNode):
    """A text with variables, in one form for all numbers. What is missing or wrong is left to Django."""

    def __init__(self, node: Any) -> None:
        super().__init__(
            node.extra_context,
            node.singular,
            trimmed=node.trimmed,
            asvar=node.asvar,
            tag_name=node.tag_name,
        )
        self._text, self._names = self.render_token_list(self.singular)
        self._kept: dict[str | None, str] = {}

    def render(self, context: Context, nested: bool = False) -> SafeString:
        language = get_language()
        if language not in self._kept:
            self._kept[language] = gettext(self._text)
        values = {name: value.resolve(context) for name, value in self.extra_context.items()}
        try:
            shown = {
                name: render_value_in_context(values[name] if name in values else context[name], context)
                for name in self._names
            }
            said = SafeString(self._kept[language] % shown)
        except (KeyError, ValueError):
            return SafeString(super().render(context, nested))
        if self.asvar:
            context[self.asvar] = said
            return SafeString("")
        return said


@register.tag
def translate(parser: Parser, token: Token) -> Node:
    node = do_translate(parser, token)
    return KeptText(node) if _is_constant(node) else node


@register.tag
def blocktranslate(parser: Parser, token: Token) -> Node:
    node = do_block_translate(parser, token)
    if node.plural or node.message_context:
        return node
    kept = KeptBlock(node)
    return kept if kept.extra_context or kept.asvar or kept._names else KeptText(kept)


def _is_constant(node: TranslateNode) -> bool:
    said = node.filter_expression
    changed = node.noop or node.asvar or node.message_context or said.filters
    return not changed and said.var.literal is not None
