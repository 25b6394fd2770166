"""Renders each fragment of a page once for all sockets that show it to people with the same rights.

One task for each fragment watches its topics, compares stamps, renders what has changed, and hands the ready message to
the sockets. So 250 open pages of one job cost as much as one, and a page that shows nothing new costs nothing. A socket
that was sent the message before is sent only the pieces of it that have changed (pieces.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from weakref import WeakKeyDictionary

from console.live import pieces, registry
from console.runtime import websocket_protocol
from console.runtime.database_threads import in_render_thread

# A burst of changes is shown in steps of this length: nobody reads faster.
STEP_S = 0.1
# A fragment that is expensive to render is rendered less often: it takes at most one part in PACE of the time.
PACE, LONGEST_STEP_S = 5, 2.0


class Form(Enum):
    """How a message is written: HTML alone, or JSON with the stamp, as old addresses send it."""

    HTML = "html"
    JSON = "json"

    def text(self, stamp: str, html: str) -> str:
        if self is Form.HTML:
            return html.strip()
        return json.dumps({"stamp": stamp, "html": html}, separators=(",", ":")) if html else ""


class RightsChanged(Exception):
    """The person for whom a fragment is rendered has other rights by now. Its other followers may still see it: each
    socket asks what its own person may see, and follows again.
    """


@dataclass(frozen=True, slots=True)
class Source:
    """What a fragment is made of. `stamp` and `render` run in a thread; an empty fragment means that it is gone.

    `render` raises RightsChanged rather than return what only this person may see. That ends the fragment.
    """

    key: Hashable
    topics: tuple[str, ...]
    stamp: Callable[[], str]
    render: Callable[[], str]
    form: Form = Form.JSON


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: as text, and as a ready frame. An empty text: the object does not exist any more."""

    text: str
    frame: bytes

    @classmethod
    def of(cls, text: str) -> Message:
        return cls(text, websocket_protocol.text_frame(text))


@dataclass(frozen=True, slots=True)
class Version:
    """A fragment as it was rendered once. `changes`: for sockets that were sent the version before it."""

    number: int
    whole: Message
    changes: Message | None
    cut: pieces.Cut

    def since(self, shown: Version | None) -> Message:
        """What a socket is sent that has shown this version before."""
        next_one = shown is not None and self.number == shown.number + 1
        return self.changes if self.changes is not None and next_one else self.whole


class Fragment:
    """The newest version of one fragment, and the task that keeps it so while a socket follows it."""

    def __init__(self, source: Source) -> None:
        self.followers = 0
        self._source = source
        self._version: Version | None = None
        self._problem: Exception | None = None
        self._stamp: str | None = None
        # How many looks at the stamp have begun, and how many of them are over.
        self._begun = self._over = 0
        self._changed = asyncio.Event()
        self._joined = asyncio.Event()
        self._watch: registry.TopicWatcher | None = None
        self.task = asyncio.create_task(self._keep(), name=f"fragment {source.key}")

    def join(self) -> int:
        """Ask for a look at the stamp that begins now. Returns its number, for `newer_than`."""
        self._joined.set()
        if self._watch is not None:
            self._watch.wake()
        return self._begun + 1

    async def newer_than(self, shown: Version | None, look: int) -> Version:
        """Wait for a version that is not `shown`, and that is at least as new as the given look."""
        while self._problem is None and (
            self._over < look or self._version is shown or self._version is None
        ):
            await self._changed.wait()
        if self._problem is not None:
            raise self._problem
        assert self._version is not None
        return self._version

    async def _keep(self) -> None:
        try:
            async with registry.of_this_loop().watch(*self._source.topics) as watch:
                self._watch = watch
                while True:
                    # Before the look: a socket that joins during it waits for the next one.
                    self._joined.clear()
                    pause = await self._look()
                    await self._rest(pause)
                    if not self._joined.is_set():
                        await watch.wait()
        except Exception as problem:
            self._problem = problem
            self._tell()

    async def _look(self) -> float:
        """Render the fragment if its stamp has changed. Returns how long to rest after that."""
        clock = asyncio.get_running_loop().time
        begun, pause = clock(), 0.0
        self._begun += 1
        # The stamp is read before the fragment: a change between the two is shown now and looked at once more.
        stamp = await in_render_thread(self._source.stamp)
        if stamp != self._stamp:
            self._version = await in_render_thread(self._rendered, stamp)
            self._stamp = stamp
            pause = min(max(STEP_S, PACE * (clock() - begun)), LONGEST_STEP_S)
        self._over = self._begun
        self._tell()
        return pause

    def _rendered(self, stamp: str) -> Version:
        """Render the fragment. Returns the version that is there already where the new one is equal."""
        before = self._version
        text = self._source.form.text(stamp, self._source.render())
        if before is not None and before.whole.text == text:
            return before
        cut = pieces.cut(text)
        changed = pieces.changes(before.cut, cut) if before is not None else None
        return Version(
            number=before.number + 1 if before is not None else 0,
            whole=Message.of(text),
            changes=Message.of(changed) if changed is not None else None,
            cut=cut,
        )

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._joined.wait()

    def _tell(self) -> None:
        """Wake all that wait, and let those who wait from now on wait for the next time."""
        self._changed.set()
        self._changed = asyncio.Event()


_fragments: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Fragment]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def follow(source: Source) -> AsyncIterator[Fragment]:
    """The fragment that all sockets with this key share. It ends with the last of them."""
    known = _fragments.setdefault(asyncio.get_running_loop(), {})
    fragment = known.get(source.key)
    if fragment is None or fragment.task.done():
        fragment = known[source.key] = Fragment(source)
    fragment.followers += 1
    try:
        yield fragment
    finally:
        fragment.followers -= 1
        if not fragment.followers:
            fragment.task.cancel()
            if known.get(source.key) is fragment:
                del known[source.key]
