"""Which pages change by themselves. All others have the socket for the notes of their person alone: what they show was
there when they were made, and they say so.
"""

from __future__ import annotations

LIVE_PAGES = frozenset(
    {
        *("jobs", "queue", "job", "log", "merged-log", "job-metrics", "job-shells", "job-spec", "job-events"),
        # A terminal.
        "shell",
        *("studies", "study", "study-parameters", "study-contour", "study-curves", "study-scatter"),
        *("study-timeline", "study-spec"),
        *("hosts", "host", "host-keys", "gpus"),
        *("projects", "project", "audit", "people", "usage"),
        *("account", "security", "notifications", "project-notifications"),
    }
)
# Their head changes by itself, what stands below does not.
LIVE_HEADS = frozenset({"job-outputs"})
