"""Python runs this at the start of each program of a trainer, because its directory is first on PYTHONPATH.

It waits for torch's DistributedDataParallel to be imported, which then learns of the reducers. What the program would
have had as its own `sitecustomize` is run as if this one were not there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

ADDRESSES = "TRAINYARD_REDUCERS"
DDP = "torch.nn.parallel.distributed"


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module, once: as it is found without us, and prepared for reducers as soon as it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != DDP:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            try:
                importlib.import_module("agents.runner.reduction.hook").patch(module.DistributedDataParallel)
            except Exception as problem:  # a torch that we do not know: the program goes on as without us
                print("reduction: gradients go without reducers: %r" % problem, file=sys.stderr, flush=True)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def run_next() -> None:
    """The `sitecustomize` that comes behind ours. Its errors are its own, as if Python had run it."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [each for each in sys.path if os.path.abspath(each or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get(ADDRESSES):
        sys.meta_path.insert(0, Finder())
    run_next()
