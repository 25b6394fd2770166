"""The help of each page: its title. Its text is the template `help/pages/NAME.html`, NAME as in urls.py."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext, gettext_noop

TITLES = {
    "welcome": gettext_noop("The first five minutes"),
    "search": gettext_noop("Search"),
    "jobs": gettext_noop("Jobs"),
    "queue": gettext_noop("Queue"),
    "new-job": gettext_noop("New job"),
    "clone-job": gettext_noop("Clone of a job"),
    "job-views": gettext_noop("Saved views"),
    "compare-jobs": gettext_noop("Compare jobs"),
    "job-templates": gettext_noop("Templates"),
    "pipelines": gettext_noop("Training pipelines"),
    "train-model": gettext_noop("Train new model"),
    "models": gettext_noop("Models"),
    "model": gettext_noop("A model"),
    "studies": gettext_noop("Studies"),
    "compare-studies": gettext_noop("Compare studies"),
    "new-study": gettext_noop("New study"),
    "study": gettext_noop("A study"),
    "study-parameters": gettext_noop("The parameters of a study"),
    "study-contour": gettext_noop("The contour of a study"),
    "study-curves": gettext_noop("The curves of a study"),
    "study-scatter": gettext_noop("The scatter matrix of a study"),
    "study-timeline": gettext_noop("The timeline of a study"),
    "study-spec": gettext_noop("What a study asked for"),
    "job-diff": gettext_noop("What differs between two jobs"),
    "job": gettext_noop("A job"),
    "job-replicas": gettext_noop("The replicas of a job"),
    "job-metrics": gettext_noop("What a job uses"),
    "job-shells": gettext_noop("The shells of a job"),
    "job-stacks": gettext_noop("The stacks of a job"),
    "job-spec": gettext_noop("What was requested"),
    "job-events": gettext_noop("What happened to a job"),
    "log": gettext_noop("The log of a replica"),
    "merged-log": gettext_noop("The log of all replicas"),
    "shell": gettext_noop("A shell"),
    "replay-shell": gettext_noop("The recording of a shell"),
    "job-outputs": gettext_noop("The files that a job wrote"),
    "job-files": gettext_noop("The files of a replica"),
    "projects": gettext_noop("Projects"),
    "choose-project": gettext_noop("Choose a project"),
    "project": gettext_noop("A project"),
    "new-project": gettext_noop("New project"),
    "own-secrets": gettext_noop("Your secrets"),
    "project-secrets": gettext_noop("Secrets of a project"),
    "project-storage": gettext_noop("What a project stores"),
    "bucket": gettext_noop("A bucket"),
    "delete-artifact": gettext_noop("Delete a file for jobs"),
    "delete-bucket": gettext_noop("Delete a bucket"),
    "delete-object": gettext_noop("Delete an object"),
    "usage": gettext_noop("Usage"),
    "notifications": gettext_noop("Notifications"),
    "notification-log": gettext_noop("Sent notifications"),
    "project-notifications": gettext_noop("Notifications of a project"),
    "project-notification-log": gettext_noop("Sent notifications of a project"),
    "account": gettext_noop("Account"),
    "command-line": gettext_noop("Command line"),
    "device-login": gettext_noop("A login of the command line"),
    "security": gettext_noop("Security of your account"),
    "second-factor": gettext_noop("A second factor"),
    "preferences": gettext_noop("Preferences"),
    "hosts": gettext_noop("Hosts"),
    "gpus": gettext_noop("GPUs"),
    "occupancy": gettext_noop("Occupancy of GPUs"),
    "host": gettext_noop("A host"),
    "add-host": gettext_noop("Add hosts"),
    "host-keys": gettext_noop("Accept the keys of many hosts"),
    "edit-host": gettext_noop("Edit a host"),
    "maintain-host": gettext_noop("Maintenance of a host"),
    "locations": gettext_noop("Locations"),
    "machines": gettext_noop("Machine types"),
    "recovery": gettext_noop("Recovery mode"),
    "people": gettext_noop("People"),
    "default-quotas": gettext_noop("Default limits"),
    "audit": gettext_noop("Audit"),
    "help-keys": gettext_noop("Keys"),
    "help-api": gettext_noop("REST API"),
    "help-training": gettext_noop("What training code can rely on"),
}
# Addresses that answer with the page of another one: a form with errors, a page that asks before an act.
SAME_AS = {
    "bulk-jobs": "jobs",
    "move-in-queue": "queue",
    "job-file": "job-files",
    "new-token": "account",
    "password": "account",
    "begin-second-factor": "second-factor",
    "remove-second-factor": "security",
    "new-recovery-codes": "security",
    "paste-hosts": "add-host",
    "compare-keys": "host-keys",
    "accept-keys": "host-keys",
    "project-settings": "project",
    "set-member": "project",
    "set-quota": "project",
    "declare-gone": "maintain-host",
}


def topic_of(page: str) -> str:
    """The help for a page, by its name in urls.py. Empty where there is none."""
    name = SAME_AS.get(page, page)
    return name if name in TITLES else ""


def title_of(topic: str) -> str:
    return gettext(TITLES[topic])


def topics(names: Iterable[str] = TITLES) -> list[tuple[str, str]]:
    """Names and titles, in the same order in every language."""
    return [(name, title_of(name)) for name in sorted(names, key=lambda name: TITLES[name].casefold())]
