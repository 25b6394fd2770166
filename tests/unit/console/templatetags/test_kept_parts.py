"""`kept` renders once for each value that it names and shows nothing else; `url` says what Django's says."""

from __future__ import annotations

from itertools import product

import pytest
from django.template import Context, Engine, RequestContext, TemplateSyntaxError
from django.test import RequestFactory
from django.urls import NoReverseMatch
from django.utils import translation
from django.utils.safestring import SafeString

from console.templatetags import kept_parts

DJANGO = Engine()
OURS = Engine(
    builtins=[
        "django.templatetags.i18n",
        "console.templatetags.kept_texts",
        "console.templatetags.kept_parts",
    ]
)
ADDRESSES = (
    "{% url 'jobs' %}",
    '{% url "jobs" %}?a=b',
    "{% url name %}",
    "{% url 'job' 7 %}",
    "{% url 'job' pk %}",
    "{% for each in all %}{% url 'project' each %}{% endfor %}",
    "{% url 'project' project=word %}",
    "{% url 'project' word as it %}[{{ it }}]",
    "{% url 'nowhere' as it %}[{{ it }}]",
    "{% autoescape off %}{% url 'project' word %}{% endautoescape %}",
    "{% url 'project' safe %}",
)
VALUES = {"name": "hosts", "pk": 3, "word": "a&b'c", "safe": SafeString("a&b"), "all": ["p", "q", "p", "ü&'"]}


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_is_what_django_would_say(text):
    theirs, ours = DJANGO.from_string(text), OURS.from_string(text)
    for _again in range(2):
        assert ours.render(Context(VALUES)) == theirs.render(Context(VALUES))


@pytest.mark.parametrize("text", ["{% url 'nowhere' %}", "{% url 'job' word %}", "{% url missing %}"])
def test_an_address_that_does_not_exist_is_an_error_each_time(text):
    for _again in range(2):
        with pytest.raises(NoReverseMatch):
            OURS.from_string(text).render(Context(VALUES))


def test_an_address_is_looked_up_once(monkeypatch):
    asked = []
    kept_parts._address.cache_clear()
    monkeypatch.setattr(kept_parts, "reverse", lambda name, args: asked.append((name, args)) or "/there")
    text = OURS.from_string("{% for n in all %}{% url 'job' n %}{% endfor %}")
    text.render(Context({"all": [1, 2, 1, 2, 1]}))
    kept_parts._address.cache_clear()
    assert asked == [("job", (1,)), ("job", (2,))]


def test_a_part_is_rendered_once_for_each_value_and_language():
    rendered = []
    text = OURS.from_string('{% kept who=who %}{% translate "Name" %} {{ who }}{{ count }}{% endkept %}')
    text.nodelist[0].nodelist.append(_Counting(rendered))
    said = [
        _in(language, text, who)
        for _again, language, who in product(range(2), ("en", "ja"), ("ada", "<bob>"))
    ]
    assert said[:4] == ["Name ada", "Name &lt;bob&gt;", "名前 ada", "名前 &lt;bob&gt;"]
    assert said[4:] == said[:4] and len(rendered) == 4


def test_a_part_knows_nothing_but_the_values_that_it_names():
    """Else the first person's name, or a token against forged forms, would be shown to the others."""
    request = RequestFactory().get("/")
    text = OURS.from_string(
        "{% kept place=place %}[{{ who }}{{ request.path }}{% csrf_token %}]{% endkept %}"
    )
    context = {"who": "ada", "place": 1, "csrf_token": "secret", "request": request}
    assert text.render(RequestContext(request, context)) == "[]"


def test_a_part_goes_on_with_what_it_includes():
    whole = OURS.from_string(
        "{% kept %}{% with it=1 %}{% cycle 'a' 'b' %}{{ it }}{% endwith %}{% endkept %}{{ it }}"
    )
    assert [whole.render(Context({"it": 2})) for _again in range(2)] == ["a12", "a12"]


def test_many_values_do_not_fill_the_memory():
    text = OURS.from_string("{% kept n=n %}{{ n }}{% endkept %}")
    assert [text.render(Context({"n": n})) for n in range(500)] == [str(n) for n in range(500)]
    assert len(text.nodelist[0]._kept) <= kept_parts.MOST_PARTS


def test_a_part_takes_values_by_name_only():
    with pytest.raises(TemplateSyntaxError):
        OURS.from_string("{% kept who %}{% endkept %}")


def test_pages_have_these_tags():
    tags = Engine.get_default().template_builtins[-1].tags
    assert tags["url"] is kept_parts.url and tags["kept"] is kept_parts.kept


class _Counting(kept_parts.Node):
    def __init__(self, rendered):
        self._rendered = rendered

    def render(self, context):
        self._rendered.append(1)
        return ""


def _in(language, text, who):
    with translation.override(language):
        return text.render(Context({"who": who}))
