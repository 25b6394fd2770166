"""The tools of shells (shells/tools.py) in containers: mounted before any of them is there, because a container gets no
mount later. The console puts them on the host when the first shell asks for them."""

from __future__ import annotations

import contextlib
import os
from typing import List, Tuple

from agents.runner.home import Home
from agents.runner.runs.orders import Order


def tools_volume(order: Order, directory: str) -> List[Tuple[str, str, str]]:
    """The mount for a run with this directory; none where it allows no shells. On a full disk it starts without."""
    if not order.web_access:
        return []
    tools = Home(os.path.basename(os.path.dirname(os.path.dirname(directory)))).tools
    try:
        os.makedirs(tools, 0o700, exist_ok=True)
        # For the user of an image. Other users of the host do not come so far: the directory above is ours alone.
        os.chmod(tools, 0o755)
        for name in os.listdir(tools):
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(tools, name), 0o755)
    except OSError:
        return []
    return [(tools, tools, "ro")]


def number_inside(pid: int) -> int:
    """The number that a process has in its own namespace; 0 if that is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/%d/status" % pid) as file:
        for line in file:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return 0
