"""The entry point: serve, shell, files or probe. Each mode imports what it needs, all of it before it begins."""

from __future__ import annotations

import sys

MODE = sys.argv[1] if len(sys.argv) == 2 else ""

if MODE == "serve":
    from agents.runner.serve import main
elif MODE == "shell":
    from agents.runner.shell import main
elif MODE == "files":
    from agents.runner.file_access import main
elif MODE == "probe":
    from agents.runner.probe import main
else:
    sys.exit("usage: python3 %s serve|shell|files|probe" % sys.argv[0])

main()
