"""The sessions of a person in words: which browser, where, since when, and by which way they logged in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from console.auth import session_list
from console.auth.session_store import Way, stored_key

# The first that is found names the browser: most browsers name others as well, for the sake of old pages.
BROWSERS = (
    ("Edg", "Edge"),
    ("OPR", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("Firefox", "Firefox"),
    ("FxiOS", "Firefox"),
    ("CriOS", "Chrome"),
    ("HeadlessChrome", "Chrome"),
    ("Chrome", "Chrome"),
    ("Safari", "Safari"),
    ("curl", "curl"),
    ("python-requests", "Python"),
)
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Macintosh", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
WAYS = {
    Way.PASSWORD: gettext_noop("password"),
    Way.LINK: gettext_noop("one-time link"),
    Way.PASSKEY: gettext_noop("passkey"),
    Way.OIDC: gettext_noop("single sign-on"),
}


@dataclass(frozen=True, slots=True)
class SessionRow:
    """`is_this`: the browser that shows the list. A time is None where it was not written down yet."""

    id: str
    browser: str
    agent: str
    address: str
    way: str
    made_at: datetime | None
    seen_at: datetime | None
    is_this: bool


def rows(user: User, key: str | None, now: datetime) -> list[SessionRow]:
    """The sessions of the person, the last used first. `key`: that of the browser that shows them."""
    return [
        SessionRow(
            id=session_list.id_of(row),
            browser=browser_of(row.agent),
            agent=row.agent,
            address=row.address,
            way=gettext(WAYS[Way(row.way)]) if row.way in WAYS else "",
            made_at=row.made_at,
            seen_at=row.seen_at,
            is_this=row.session_key == stored_key(key or ""),
        )
        for row in session_list.of(user, now)
    ]


def browser_of(agent: str) -> str:
    """`Firefox on Linux`. What a browser says of itself is a hint, never a proof."""
    browser = _named(BROWSERS, agent, r"\b{}\b")
    system = _named(SYSTEMS, agent, r"{}")
    if browser and system:
        return _("{browser} on {system}").format(browser=browser, system=system)
    return browser or system or _("unknown browser")


def _named(names: tuple[tuple[str, str], ...], agent: str, pattern: str) -> str:
    return next((name for sign, name in names if re.search(pattern.format(sign), agent)), "")
