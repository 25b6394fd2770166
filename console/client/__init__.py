"""The command line client: for people who are not on the console's machine.

It stands alone: it imports nothing of the other rooms, and needs only Python 3.9. Therefore its modules import each
other relatively: they are `console.client` here, and `trainyard_client` where only the client is installed.
"""

from __future__ import annotations

VERSION = "0.1.0"
