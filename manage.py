#!/usr/bin/env python3
"""Django's own door, for developers. People who run Trainyard use the `trainyard` command."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    execute_from_command_line(sys.argv)
