"""Buckets as Google's storage API has them: `GET, POST /storage/v1/b?project=P`, `GET, DELETE /storage/v1/b/B`."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import BadRequest
from console.api.storage.resources import bucket_document
from console.api.storage.views import StorageView, actor, bucket_or_404
from console.auth import access
from jobs.artifacts import buckets
from jobs.models import Bucket, Project

# Google's client sends these; a location and a class of storage change nothing here.
FIELDS = frozenset({"name", "location", "storageClass", "kind", "labels", "iamConfiguration", "locationType"})


class BucketsView(StorageView):
    def get(self, request: Request) -> Response:
        project = self._project(request, "see_files")
        rows = Bucket.objects.filter(
            project=project, name__startswith=request.query_params.get("prefix", "")
        ).select_related("project")
        return Response({"kind": "storage#buckets", "items": [bucket_document(row, request) for row in rows]})

    def post(self, request: Request) -> Response:
        project = self._project(request, "store")
        body = request.data
        if not isinstance(body, dict) or not isinstance(body.get("name"), str):
            raise BadRequest("name", "name must be the name of the bucket.")
        unknown = sorted(str(name)[:60] for name in body.keys() - FIELDS)
        if unknown:
            raise BadRequest(unknown[0], f"{unknown[0]} is not a field of a bucket here.")
        with transaction.atomic():
            row = buckets.create(project, body["name"], actor(request).username, timezone.now())
        return Response(bucket_document(row, request))

    def _project(self, request: Request, verb: access.Verb) -> Project:
        named = request.query_params.get("project", "")
        if not named:
            raise BadRequest("project", "project must name the project of the buckets.")
        return access.project_or_404(request.user, verb, named)


class BucketView(StorageView):
    def get(self, request: Request, bucket: str) -> Response:
        return Response(bucket_document(bucket_or_404(request, "see_files", bucket), request))

    def delete(self, request: Request, bucket: str) -> Response:
        row = bucket_or_404(request, "store", bucket)
        with transaction.atomic():
            buckets.delete(row, actor(request).username, timezone.now())
        return Response(status=204)
