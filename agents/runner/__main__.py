"""The entry point: one mode of the runner. Each imports what it needs, all of it before it begins."""

from __future__ import annotations

import gc
import os
import sys

from agents.runner.compiled import may_keep, read_compiled

MODE = sys.argv[1] if len(sys.argv) == 2 else ""


def fork_to_compile() -> bool:
    """For the next starts: nothing, or nothing whole, is kept of what this Python makes of the modules.

    True in a process that nobody waits for, which is to compile them.
    """
    if not may_keep(sys.argv[0]):
        return False
    try:
        child = os.fork()
    except OSError:  # this login may have no more processes, and some modes need none
        return False
    if child == 0:
        try:
            if os.fork() == 0:
                return True
        except OSError:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    return False


kept = read_compiled(__loader__)  # type: ignore[name-defined]
if kept is not None:
    sys.meta_path.insert(0, kept)
elif fork_to_compile():  # now, while there is little that a fork copies
    MODE = "compile"
# What is imported stays: nothing of it is garbage that would be worth to look for.
gc.disable()

if MODE == "serve":
    from agents.runner.serve import main
elif MODE == "shell":
    from agents.runner.shells.shell import main
elif MODE == "attach":
    from agents.runner.shells.attach import main
elif MODE == "stacks":
    from agents.runner.shells.stacks import main
elif MODE == "files":
    from agents.runner.file_access import main
elif MODE == "put":
    from agents.runner.cache.put import main
elif MODE == "prepare":
    from agents.runner.preparations.worker import main
elif MODE == "outputs":
    from agents.runner.outputs.transfer import main
elif MODE == "probe":
    from agents.runner.host.probe import main
elif MODE == "compile":
    from agents.runner.compiling import main
else:
    sys.exit("usage: python3 %s serve|shell|attach|stacks|files|put|outputs|prepare|probe" % sys.argv[0])

gc.enable()
if kept is not None and not kept.whole and fork_to_compile():
    from agents.runner.compiling import main
main()
