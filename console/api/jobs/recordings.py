"""`GET /api/v1/jobs/N/shells/KEY/recording`: what a shell showed, as asciicast v2."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from rest_framework.request import Request

from console.api.description import described
from console.api.views import TrainyardView, person
from console.auth import access
from console.presenters.shells import recordings
from jobs.models import Job


class RecordingView(TrainyardView):
    @described(
        "Download what a shell showed, as asciicast v2",
        needs="replay_shell",
        files=("application/x-asciicast",),
    )
    def get(self, request: Request, job_id: str, key: str) -> StreamingHttpResponse:
        rows = Job.objects.select_related("project")
        job = access.get_or_404(request.user, "replay_shell", rows, pk=int(job_id))
        return recordings.download(recordings.recording_or_404(job, key), person(request).get_username())
