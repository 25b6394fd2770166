"""Looking for a text in all of a replica's log: `GET /api/v1/jobs/<id>/replicas/<name>/log/search?q=[&run=&from=]`.

Each answer looks through some megabytes and says how far (`searchedTo`); asked again `from` there it goes on, until
`searchedTo` is `stored`. Without `run`, the replica's newest run.
"""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console import access
from console.api.errors import Refused
from console.api.log_bytes import number, run_of
from console.api.views import OurView
from console.presenters.last_words import plain
from jobs import finding
from jobs.models import Job

MOST_TEXT = 200


class SearchView(OurView):
    def get(self, request: Request, job_id: str, replica: str) -> Response:
        rows = Job.objects.select_related("project")
        job = access.get_or_404(request.user, "see_log", rows, pk=int(job_id))
        asked = request.query_params
        text, start = asked.get("q", ""), number(asked.get("from", "0"), "from")
        if not 0 < len(text) <= MOST_TEXT or not text.isprintable():
            raise Refused("q", f"q must be a text of one line, of 1 to {MOST_TEXT} characters.")
        run = run_of(job, replica, asked.get("run", ""))
        if run is None:
            return Response({"run": "", "hits": [], "searchedTo": 0, "stored": 0})
        found = finding.find(run, text.encode("utf-8", "replace"), min(start, run.log_stored), run.log_stored)
        behind = len(found.hits) < finding.MOST_HITS and found.end + len(text.encode()) > run.log_stored
        end = run.log_stored if behind else found.end
        answer: dict[str, Any] = {"run": run.pk, "searchedTo": end, "stored": run.log_stored}
        return Response({**answer, "hits": [document(hit) for hit in found.hits]})


def document(hit: finding.Hit) -> dict[str, Any]:
    return {"offset": hit.offset, "line": hit.line, "text": plain(hit.text)}
