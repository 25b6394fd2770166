"""Read the text of a Python file into a tree."""

from __future__ import annotations

import ast
import gc


def parsed(source: str) -> ast.Module:
    """Meanwhile nothing searches for garbage: each search goes through all trees that were read before, which takes
    three quarters of the time."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()
