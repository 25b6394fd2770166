"""The addresses of the pages. Those of a noun are in its folder."""

from __future__ import annotations

from django.urls import path

from console.views import help, home, search
from console.views.hosts.urls import urlpatterns as hosts
from console.views.jobs.urls import urlpatterns as jobs
from console.views.people.urls import urlpatterns as people
from console.views.projects.urls import urlpatterns as projects
from console.views.storage.urls import urlpatterns as storage
from console.views.studies.urls import urlpatterns as studies

urlpatterns = [
    path("", home.home, name="home"),
    path("welcome", home.welcome, name="welcome"),
    path("search", search.search, name="search"),
    path("help/", help.index, name="help-index"),
    path("help/on/<slug:topic>", help.page, name="help"),
    path("help/keys", help.keys, name="help-keys"),
    path("help/api", help.api, name="help-api"),
    path("help/training", help.training, name="help-training"),
    *people,
    *jobs,
    *hosts,
    *projects,
    *storage,
    *studies,
]
