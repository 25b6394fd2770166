"""Which live parts each page has."""

from __future__ import annotations

from console.parts.hosts import GPU_MAP, HOST, HOST_LIST
from console.parts.jobs import HISTORY, JOB, JOB_LIST, QUEUE
from console.parts.notes import NOTES
from console.parts.part import Part, Place
from console.parts.projects import PROJECT, PROJECT_LIST

# The name of the page in urls.py → its own parts. Every page has the notes.
PAGES: dict[str, tuple[Part, ...]] = {
    "jobs": (JOB_LIST,),
    "job": (JOB,),
    "queue": (QUEUE,),
    "job-history": (HISTORY,),
    "hosts": (HOST_LIST,),
    "host": (HOST,),
    "gpus": (GPU_MAP,),
    "projects": (PROJECT_LIST,),
    "project": (PROJECT,),
}


def parts_of(place: Place) -> tuple[Part, ...]:
    return (*PAGES.get(place.name, ()), NOTES)
