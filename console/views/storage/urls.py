"""The addresses of the pages of stored files."""

from __future__ import annotations

from django.urls import path

from console.views.storage import storage

STORAGE = "projects/<slug:project>/storage"

urlpatterns = [
    path(STORAGE, storage.storage, name="project-storage"),
    path(f"{STORAGE}/buckets/add", storage.add_bucket, name="add-bucket"),
    path(f"{STORAGE}/artifacts/add", storage.add_artifact, name="add-artifact"),
    path(f"{STORAGE}/artifacts/<slug:sha256>", storage.artifact_file, name="artifact-file"),
    path(f"{STORAGE}/artifacts/<slug:sha256>/delete", storage.delete_artifact, name="delete-artifact"),
    path(f"{STORAGE}/b/<str:bucket>", storage.bucket, name="bucket"),
    path(f"{STORAGE}/b/<str:bucket>/file/<path:name>", storage.object_file, name="object-file"),
    path(f"{STORAGE}/b/<str:bucket>/delete", storage.delete_bucket, name="delete-bucket"),
    path(f"{STORAGE}/b/<str:bucket>/delete/<path:name>", storage.delete_object, name="delete-object"),
    path(f"{STORAGE}/b/<str:bucket>/change", storage.change_bucket, name="change-bucket"),
    path(f"{STORAGE}/b/<str:bucket>/upload", storage.add_object, name="add-object"),
]
