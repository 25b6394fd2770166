"""The entry point: one mode of the runner. Each imports what it needs, all of it before it begins."""

from __future__ import annotations

import sys

MODE = sys.argv[1] if len(sys.argv) == 2 else ""

if MODE == "serve":
    from agents.runner.serve import main
elif MODE == "shell":
    from agents.runner.shells.shell import main
elif MODE == "attach":
    from agents.runner.shells.attach import main
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
else:
    sys.exit("usage: python3 %s serve|shell|attach|files|put|outputs|prepare|probe" % sys.argv[0])

main()
