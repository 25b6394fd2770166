"""The addresses of the pages of jobs, logs and shells."""

from __future__ import annotations

from django.urls import path

from console.views.jobs import (
    bulk,
    compare,
    copies,
    files,
    job_tabs,
    job_templates,
    jobs,
    logs,
    new_job,
    queue,
    recordings,
    saved_views,
    shells,
)

urlpatterns = [
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/bulk", bulk.bulk, name="bulk-jobs"),
    path("jobs/compare", compare.compare_jobs, name="compare-jobs"),
    path("jobs/views", saved_views.views, name="job-views"),
    path("jobs/views/<int:view_id>/remove", saved_views.remove, name="remove-job-view"),
    path("jobs/queue", queue.queue, name="queue"),
    path("jobs/queue/move", queue.move, name="move-in-queue"),
    path("jobs/new", new_job.new, name="new-job"),
    path("jobs/new/summary", new_job.summary, name="new-job-summary"),
    path("jobs/new/env-rows", new_job.env_rows, name="new-job-env-rows"),
    path("jobs/templates/", job_templates.templates, name="job-templates"),
    path("jobs/templates/<int:template_id>/delete", job_templates.remove, name="remove-job-template"),
    path("jobs/sample", new_job.sample, name="sample-job"),
    path("jobs/<int:job_id>/", job_tabs.overview, name="job"),
    path("jobs/<int:job_id>/replicas", job_tabs.replicas, name="job-replicas"),
    path("jobs/<int:job_id>/metrics", job_tabs.metrics, name="job-metrics"),
    path("jobs/<int:job_id>/shells/", job_tabs.shells, name="job-shells"),
    path("jobs/<int:job_id>/spec", job_tabs.spec, name="job-spec"),
    path("jobs/<int:job_id>/events", job_tabs.events, name="job-events"),
    path("jobs/<int:job_id>/history", job_tabs.history, name="job-history"),
    path("jobs/<int:job_id>/cancel", jobs.cancel, name="cancel-job"),
    path("jobs/<int:job_id>/clone", new_job.clone, name="clone-job"),
    path("jobs/<int:job_id>/rerun", copies.rerun, name="rerun-job"),
    path("jobs/<int:job_id>/diff", copies.diff, name="job-diff"),
    path("jobs/<int:job_id>/delete", jobs.delete, name="delete-job"),
    path("jobs/<int:job_id>/log", logs.merged_log, name="merged-log"),
    path("jobs/<int:job_id>/log/<str:replica>", logs.log, name="log"),
    path("jobs/<int:job_id>/shell/<str:run_id>", shells.shell, name="shell"),
    path("jobs/<int:job_id>/files/<str:replica>", files.job_files, name="job-files"),
    path("jobs/<int:job_id>/files/<str:replica>/download", files.job_file, name="job-file"),
    path("jobs/<int:job_id>/shells/new", shells.new_shell, name="new-shell"),
    path("jobs/<int:job_id>/shells/<str:key>/close", shells.close_shell, name="close-shell"),
    path("jobs/<int:job_id>/shells/<str:key>/replay", recordings.replay, name="replay-shell"),
    path("jobs/<int:job_id>/shells/<str:key>/recording", recordings.recording, name="shell-recording"),
    path("jobs/<int:job_id>/shells/<str:key>/share", shells.share_shell, name="share-shell"),
]
