"""A WebSocket server that speaks as a kept shell does, and echoes what is typed: the reference of `paint`.

It is a process of its own, and prints its port.
"""

from __future__ import annotations

import asyncio
import json

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from console.live.beats import BEAT_S


async def shell(socket):
    typed = 0
    beating = asyncio.create_task(beats(socket))
    try:
        async for message in socket:
            if isinstance(message, bytes):
                await socket.send(message)
                typed += len(message)
                continue
            asked = json.loads(message)
            if "client" in asked:
                await socket.send(json.dumps({"ready": ready(asked, typed)}))
    except ConnectionClosed:
        pass
    finally:
        beating.cancel()


def ready(asked, typed):
    shown = asked["from"] or 0
    answer = {"at": shown, "end": shown, "lost": False, "modes": "", "taken": typed, "size": asked["resize"]}
    return {**answer, "types": True, "recording": False, "shared": False, "mayShare": False}


async def beats(socket):
    while True:
        await socket.send(json.dumps({"beat": BEAT_S}))
        await asyncio.sleep(BEAT_S)


async def main():
    async with serve(shell, "127.0.0.1", 0, compression=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


asyncio.run(main())
