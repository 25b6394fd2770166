"""Accept the keys of many hosts that are equal to a pasted text."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.hosts import pasted_keys
from agents.models import Host
from console.api.description import described, form
from console.api.errors import BadRequest
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person, require_confirmed
from console.auth import access
from console.presenters.hosts import offered_keys
from jobs.maintenance import enrol_host

Document = dict[str, Any]


class PastedKeys(TypedDict):
    """`keys`: what ssh-keyscan or ssh-keygen -l prints. `changed`: the hosts of which a changed key may be accepted."""

    keys: Annotated[str, form(maxLength=pasted_keys.MAX_TEXT)]
    changed: NotRequired[list[str]]
    validateOnly: NotRequired[bool]


class ComparedKey(TypedDict):
    host: str
    id: int
    jumpHost: str
    fingerprint: str
    type: str
    acceptedBefore: Annotated[str, "The fingerprint that was accepted before; or empty."]
    verdict: str
    message: str
    pasted: list[Any]
    accepted: bool


class ComparedKeys(TypedDict):
    """`unused`: pasted keys that no host shows. `problems`: lines that were not understood."""

    keys: list[ComparedKey]
    unused: list[Any]
    problems: list[Any]


class AcceptKeysView(TrainyardView):
    """`POST /api/v1/hosts:acceptKeys {"keys": <text>, "changed": [<host>], "validateOnly": <bool>}`.

    `keys`: what ssh-keyscan or ssh-keygen -l prints. `changed`: the hosts whose key has changed and may be accepted.
    """

    @described(
        "Accept the keys of hosts that equal a pasted text",
        ComparedKeys,
        needs="manage",
        body=PastedKeys,
        confirmed="accept the keys of hosts",
    )
    def post(self, request: Request) -> Response:
        access.require(request.user, "manage", Host)
        body = RequestBody(request, PastedKeys)
        text = body.text("keys", None, pasted_keys.MAX_TEXT)
        changed, only_look = _names(body), body.boolean("validateOnly")
        if not only_look:
            require_confirmed(request, "accept the keys of hosts")
        page = offered_keys.compared(offered_keys.machines_of(person(request)), pasted_keys.parse(text))
        _check_changed(page, changed)
        wanted = [
            (row.key.row, row.key.fingerprint)
            for row in page.keys
            if row.is_equal and (not row.key.accepted or row.key.name in changed)
        ]
        if only_look:
            return Response(_document(page, frozenset()))
        accepted, _refused = enrol_host.accept_host_keys(wanted, person(request).username, timezone.now())
        return Response(_document(page, frozenset(host.pk for host in accepted)))


def _names(body: RequestBody) -> frozenset[str]:
    names = body.get("changed", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("changed", "changed must be a list of names of hosts.")
    return frozenset(names)


def _check_changed(page: offered_keys.KeyPage, names: frozenset[str]) -> None:
    known = {row.key.name for row in page.keys if row.key.accepted}
    for name in sorted(names - known):
        raise BadRequest("changed", f"{name[:63]!r} is no host that shows another key than the accepted one.")


def _document(page: offered_keys.KeyPage, accepted: frozenset[int]) -> Document:
    return {
        "keys": [
            {
                "host": row.key.name,
                "id": row.key.row.pk,
                "jumpHost": row.key.at,
                "fingerprint": row.key.fingerprint,
                "type": row.key.kind,
                "acceptedBefore": row.key.accepted,
                "verdict": row.verdict.value,
                "message": row.words,
                "pasted": list(row.lines),
                "accepted": row.key.row.pk in accepted,
            }
            for row in page.keys
        ],
        "unused": list(page.unused),
        "problems": list(page.problems),
    }
