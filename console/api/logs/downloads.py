"""Places for downloads of logs that take long: so many at once in this process, with a share for each person."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator

from rest_framework.request import Request

from agents.infra.places import AllTaken, Places
from console.api.rate_limits import TooManyRequests

# By person. A download takes as long as its client likes.
places = Places(64, each=4)
RETRY_S = 5


class Placed:
    """The parts of a download, which has a place among those of its person until it ends, is closed or forgotten."""

    def __init__(self, request: Request, parts: AsyncIterator[bytes]) -> None:
        share = str(request.user.pk)
        try:
            places.take(share)
        except AllTaken:
            raise TooManyRequests(
                "Too many downloads of logs are under way. Try again when one has ended.", RETRY_S
            ) from None
        self._parts = parts
        # A client may go before the first part is asked for.
        self.close = weakref.finalize(self, places.give_back, share)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._parts:
                yield part
        finally:
            self.close()
