"""Which live parts each page has."""

from __future__ import annotations

from console.parts.hosts import GPU_MAP, HOST, HOST_KEYS, HOST_LIST, HOST_LOAD
from console.parts.jobs import (
    JOB_EVENTS,
    JOB_LIST,
    JOB_LOG,
    JOB_METRICS,
    JOB_OVERVIEW,
    JOB_SHELLS,
    JOB_SPEC,
    QUEUE,
    WHOLE_JOB,
)
from console.parts.notes import NOTES
from console.parts.part import Part, Place
from console.parts.people import AUDIT, PEOPLE, SENT, SESSIONS, TOKENS
from console.parts.projects import PROJECT, PROJECT_LIST, SENT_OF_PROJECT, USAGE
from console.parts.studies import (
    STUDY_BODY,
    STUDY_CONTOUR,
    STUDY_COST,
    STUDY_CURVES,
    STUDY_HEAD,
    STUDY_LIST,
    STUDY_PARAMETERS,
    STUDY_SCATTER,
    STUDY_TIMELINE,
)

# The name of the page in urls.py → its own parts. Every page has the notes.
PAGES: dict[str, tuple[Part, ...]] = {
    "jobs": (JOB_LIST,),
    "queue": (QUEUE,),
    "job": JOB_OVERVIEW,
    "log": JOB_LOG,
    "merged-log": JOB_LOG,
    "job-metrics": JOB_METRICS,
    "job-shells": JOB_SHELLS,
    "job-spec": JOB_SPEC,
    "job-events": JOB_EVENTS,
    "job-outputs": JOB_LOG,
    "studies": (STUDY_LIST,),
    "study": (STUDY_HEAD, STUDY_BODY, STUDY_COST),
    "study-parameters": (STUDY_HEAD, STUDY_PARAMETERS, STUDY_CONTOUR),
    "study-contour": (STUDY_HEAD, STUDY_CONTOUR),
    "study-curves": (STUDY_HEAD, STUDY_CURVES),
    "study-scatter": (STUDY_HEAD, STUDY_SCATTER),
    "study-timeline": (STUDY_HEAD, STUDY_TIMELINE),
    "study-spec": (STUDY_HEAD,),
    "hosts": (HOST_LIST,),
    "host": (HOST, HOST_LOAD),
    "host-keys": (HOST_KEYS,),
    "gpus": (GPU_MAP,),
    "projects": (PROJECT_LIST,),
    "project": (PROJECT,),
    "audit": (AUDIT,),
    "people": (PEOPLE,),
    "usage": (USAGE,),
    "account": (TOKENS,),
    "security": (SESSIONS,),
    "notifications": (SENT,),
    "project-notifications": (SENT_OF_PROJECT,),
}
# What the sockets of before version 0.4 send, which scripts of people may follow: one part for each page.
OLD_PAGES: dict[str, tuple[Part, ...]] = {
    "jobs": (JOB_LIST,),
    "job": (WHOLE_JOB,),
    "hosts": (HOST_LIST,),
    "host": (HOST,),
}


def parts_of(place: Place) -> tuple[Part, ...]:
    return (*PAGES.get(place.name, ()), NOTES)
