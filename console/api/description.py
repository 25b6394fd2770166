"""Describes a call of the API, at the method of the view that answers it: `@described("List the hosts", Hosts, …)`.

Most of the description (OpenAPI; `openapi/`) is read from the code: the address and its parameters, the methods, the
scope that a token needs. `described` adds the summary, and the types of what comes and goes. A type is a TypedDict,
which also names the fields that `RequestBody` lets in. Tests compare each answer with the type that it is described by.

Nothing here is needed to answer a call, so the package that writes the description is imported when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypedDict, TypeVar

from console.auth.access import Verb

Method = TypeVar("Method", bound=Callable[..., Any])
Type = Any
# What belongs to a person alone: a token needs all of their rights to change it, and must not be limited to a project.
ACCOUNT: Final = "account"
# Whoever is logged in; what they see follows from their roles. And who is not even logged in.
ANYBODY: Final = "anybody"
EVERYBODY: Final = "everybody"


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """In `Annotated[str, Form(…)]`: what a type does not say, in the words of JSON Schema."""

    words: Mapping[str, Any]


def form(**words: Any) -> Form:
    return Form(words)


def one_of(values: Iterable[object]) -> Form:
    """Of a text that is one of these: `Annotated[str, one_of(STATES)]`."""
    return form(enum=[str(value) for value in values])


Time = Annotated[str, form(format="date-time")]
# Numbers that JSON of every language keeps exactly.
Id = Annotated[str, form(pattern="^[0-9]+$")]
Bytes = Annotated[str, form(pattern="^[0-9]+$", description="A number of bytes.")]


class Nothing(TypedDict):
    """Nothing more is said."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter behind the question mark."""

    name: str
    text: str
    type: Type = str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`needs`: the verb of `access` that decides. `own`: the same where the address names no project. `body`: a type,
    or `bytes`. `files`: the kinds of content that come instead of JSON. `statuses`: of answers that are no errors.
    `confirmed`: a token must be allowed to do what a person must give the password for."""

    summary: str
    answer: Type | None = None
    needs: Verb | str = ANYBODY
    own: str = ""
    body: Type | None = None
    query: tuple[Query, ...] = ()
    files: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    confirmed: str = ""


@dataclass(frozen=True, slots=True)
class Acts:
    """Several calls by one method: the address names the act."""

    calls: Mapping[str, Call] = field(default_factory=dict)


def described(summary: str, answer: Type | None = None, **more: Any) -> Callable[[Method], Method]:
    """Keep a `Call` with the method."""
    return _kept(Acts({"": Call(summary, answer, **more)}))


def described_acts(answer: Type, calls: Mapping[str, Call]) -> Callable[[Method], Method]:
    """Keep a `Call` for each act that the address may name. All of them have the same answer."""
    return _kept(Acts({act: replace(call, answer=answer) for act, call in calls.items()}))


def _kept(acts: Acts) -> Callable[[Method], Method]:
    def keep(method: Method) -> Method:
        method.described = acts  # type: ignore[attr-defined]
        return method

    return keep


def paged(usual: int, most: int) -> tuple[Query, Query]:
    return (
        Query("pageSize", f"At most so many; {usual} if nothing is said, never more than {most}.", Size),
        Query("pageToken", "The `nextPageToken` of the page before.", str),
    )


Size = Annotated[int, form(minimum=0)]
RUN = Query("run", "The id of a run of this replica; without it, the newest one.")
