"""`make bench`: the product measured beside its references, on the same machine in the same run. See README.md."""

from __future__ import annotations

import os

# As in the processes of the product (console/settings.py), before any part loads numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
