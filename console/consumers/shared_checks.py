"""One answer for all who ask the same at the same moment.

Of 200 tabs that show one log, many belong to the same few people. Whether one of them may still see it is asked of the
database once for all that person's sockets; an answer is passed on for a second, which the sockets' timers allow for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from weakref import WeakKeyDictionary

GOOD_FOR_S = 1.0
MAX_ANSWERS = 1_000

Asked = dict[Hashable, tuple[float, asyncio.Task[None]]]
_asked: WeakKeyDictionary[asyncio.AbstractEventLoop, Asked] = WeakKeyDictionary()


async def ask_once(question: Hashable, ask: Callable[[], Coroutine[None, None, None]]) -> None:
    """Returns or raises what `ask` did, for whoever asked this first within the last second."""
    loop = asyncio.get_running_loop()
    asked = _asked.setdefault(loop, {})
    now = loop.time()
    at, task = asked.get(question, (0.0, None))
    if task is None or now - at > GOOD_FOR_S:
        if len(asked) > MAX_ANSWERS:
            asked.clear()
        task = loop.create_task(ask())
        # Whoever asked may have gone before the answer came, and nobody else may want it.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        asked[question] = now, task
    await asyncio.shield(task)
