"""`python -m trainyard_client`, where the command is not on the PATH."""

from __future__ import annotations

import sys

from .main import main

sys.exit(main())
