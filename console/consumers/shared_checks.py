"""Shares one permission check among all sockets of a person that ask the same question at the same time.

Of 200 tabs that show one log, many belong to the same few people. Whether a person may still see the log is read from
the database once for all sockets of that person. An answer is shared for one second; the sockets' timers allow for it.
Then it is forgotten: a question may hold its socket, and with it all that a shell has printed and nobody has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any
from weakref import WeakKeyDictionary

GOOD_FOR_S = 1.0

Asked = dict[Hashable, tuple[float, asyncio.Task[Any]]]
_asked: WeakKeyDictionary[asyncio.AbstractEventLoop, Asked] = WeakKeyDictionary()


async def ask_once(question: Hashable, ask: Callable[[], Coroutine[None, None, Any]]) -> Any:
    """Return or raise the result of `ask`, which the first caller of the last second started for this question."""
    loop = asyncio.get_running_loop()
    asked = _asked.setdefault(loop, {})
    now = loop.time()
    at, task = asked.get(question, (0.0, None))
    if task is None or now - at > GOOD_FOR_S:
        task = loop.create_task(ask())
        # The caller may have gone before the answer came. Reading the exception avoids a warning that nobody read it.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        asked[question] = now, task
        loop.call_later(GOOD_FOR_S, _forget, asked, question, task)
    return await asyncio.shield(task)


def _forget(asked: Asked, question: Hashable, task: asyncio.Task[Any]) -> None:
    if asked.get(question, (0.0, None))[1] is task:
        del asked[question]
