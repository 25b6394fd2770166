"""Turn database rows into frozen values for pages, and those into fragments. Sockets use the names below.

Views use the modules.
"""

from __future__ import annotations

from console.presenters.hosts.host_list import rights as hosts_rights
from console.presenters.jobs.job_parts import job_live, job_stamp
from console.presenters.jobs.job_parts import part_live as job_part_live
from console.presenters.jobs.job_parts import part_stamp as job_part_stamp
from console.presenters.live import (
    NotForAll,
    audit_live,
    audit_stamp,
    gpus_live,
    gpus_stamp,
    host_keys_live,
    host_keys_stamp,
    host_live,
    host_stamp,
    hosts_live,
    hosts_stamp,
    list_live,
    list_stamp,
    notes_live,
    notes_stamp,
    people_live,
    people_stamp,
    project_live,
    project_stamp,
    projects_live,
    projects_stamp,
    queue_live,
    queue_stamp,
    sent_live,
    sent_stamp,
    sessions_live,
    sessions_stamp,
    tokens_live,
    tokens_stamp,
    usage_live,
    usage_stamp,
)

__all__ = [
    "NotForAll",
    "audit_live",
    "audit_stamp",
    "gpus_live",
    "gpus_stamp",
    "host_keys_live",
    "host_keys_stamp",
    "host_live",
    "host_stamp",
    "hosts_live",
    "hosts_rights",
    "hosts_stamp",
    "job_live",
    "job_part_live",
    "job_part_stamp",
    "job_stamp",
    "list_live",
    "list_stamp",
    "notes_live",
    "notes_stamp",
    "people_live",
    "people_stamp",
    "queue_live",
    "queue_stamp",
    "project_live",
    "project_stamp",
    "projects_live",
    "projects_stamp",
    "usage_live",
    "usage_stamp",
    "tokens_live",
    "tokens_stamp",
    "sessions_live",
    "sessions_stamp",
    "sent_live",
    "sent_stamp",
]
