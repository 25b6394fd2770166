"""The addresses of Google's storage API."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import re_path

from console.api.storage import buckets, objects, uploads

B = r"storage/v1/b/(?P<bucket>[a-z0-9._-]{1,63})"
NAME = r"(?P<name>.{1,1024})"
COPY = rf"{NAME}/(?P<how>rewriteTo|copyTo)/b/(?P<to>[a-z0-9._-]{{1,63}})/o/(?P<new_name>.{{1,1024}})"


def on_post(act: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """What a POST does with an object. Any other method means the object whose name is all of the address: it may end
    with `/compose`."""
    there = objects.ObjectView.as_view()

    @wraps(act)
    def view(request: HttpRequest, bucket: str, whole: str, **parts: Any) -> HttpResponseBase:
        if request.method == "POST":
            return act(request, bucket=bucket, **parts)
        return there(request, bucket=bucket, name=whole)

    return view


urlpatterns = [
    re_path(r"^/*storage/v1/b/?$", buckets.BucketsView.as_view()),
    re_path(rf"^/*{B}$", buckets.BucketView.as_view()),
    re_path(rf"^/*(?:resumable/)?upload/{B}/o/?$", uploads.UploadView.as_view()),
    re_path(rf"^/*download/{B}/o/{NAME}$", objects.MediaView.as_view()),
    re_path(rf"^/*{B}/o/?$", objects.ObjectsView.as_view()),
    re_path(rf"^/*{B}/o/(?P<whole>{COPY})$", on_post(objects.CopyView.as_view())),
    re_path(rf"^/*{B}/o/(?P<whole>{NAME}/compose)$", on_post(objects.ComposeView.as_view())),
    re_path(rf"^/*{B}/o/{NAME}$", objects.ObjectView.as_view()),
]
