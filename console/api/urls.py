"""All addresses of the REST API. They begin with `/*`, because an SDK endpoint with a slash at its end doubles it."""

from __future__ import annotations

from django.urls import re_path

from console.api import google_locations, operations, reports, search, unimplemented
from console.api.hosts import gpus, hosts, kept, keys, locations, machine_types, recovery
from console.api.jobs import (
    batches,
    custom_jobs,
    events,
    files,
    job_lists,
    jobs,
    metrics,
    outputs,
    preparations,
    queue,
    recordings,
    samples,
    saved_views,
    shells,
    stacks,
)
from console.api.logs import log_archive, log_bytes, log_entries, log_lines, log_pages, log_search
from console.api.openapi import view as openapi
from console.api.pipelines import models, training_pipelines
from console.api.projects import urls
from console.api.storage import urls as storage
from console.api.tuning import studies, tuning_jobs

PARENT = r"projects/(?P<project>[^/:]{1,63})/locations/(?P<location>[^/:]{1,63})"
HOST = r"(?P<host>[A-Za-z0-9_-]{1,63})"
JOB = r"(?P<job_id>[0-9]{1,19})"
TUNING = r"(?P<tuning_id>[0-9]{1,19})"
PIPELINE = r"(?P<pipeline_id>[0-9]{1,19})"
OPERATION = r"(?P<operation>[0-9]{1,19})"
MODEL = r"(?P<model>[A-Za-z0-9_-]{1,63})(?:@(?P<version>[A-Za-z0-9-]{1,128}))?"
# `gcloud beta` and preview parts of the SDK ask for v1beta1. Custom jobs are the same there.
V = r"(?:v1|v1beta1)"

urlpatterns = [
    re_path(rf"^/*{V}/{PARENT}/customJobs/?$", custom_jobs.JobsView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/customJobs/{JOB}$", custom_jobs.JobView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/customJobs/{JOB}:cancel$", custom_jobs.CancelView.as_view()),
    # The SDK requests operations below /ui/.
    re_path(rf"^/*(?:{V}|ui)/{PARENT}/operations/{OPERATION}$", operations.OperationView.as_view()),
    re_path(rf"^/*(?:{V}|ui)/{PARENT}/operations/{OPERATION}:wait$", operations.WaitView.as_view()),
    re_path(rf"^/*(?:{V}|ui)/{PARENT}/operations/{OPERATION}:cancel$", operations.CancelView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/hyperparameterTuningJobs/?$", tuning_jobs.TuningJobsView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/hyperparameterTuningJobs/{TUNING}$", tuning_jobs.TuningJobView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/hyperparameterTuningJobs/{TUNING}:cancel$", tuning_jobs.CancelView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/trainingPipelines/?$", training_pipelines.PipelinesView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/trainingPipelines/{PIPELINE}$", training_pipelines.PipelineView.as_view()),
    re_path(
        rf"^/*{V}/{PARENT}/trainingPipelines/{PIPELINE}:cancel$", training_pipelines.CancelView.as_view()
    ),
    re_path(rf"^/*{V}/{PARENT}/models/?$", models.ModelsView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/models/{MODEL}$", models.ModelView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/models/{MODEL}:listVersions$", models.VersionsView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/models/{MODEL}:deleteVersion$", models.DeleteVersionView.as_view()),
    re_path(rf"^/*{V}/{PARENT}/models/{MODEL}:mergeVersionAliases$", models.AliasesView.as_view()),
    re_path(
        rf"^/*{V}/projects/(?P<project>[^/:]{{1,63}})/locations/?$", google_locations.LocationsView.as_view()
    ),
    re_path(rf"^/*{V}/{PARENT}/?$", google_locations.LocationView.as_view()),
    re_path(r"^/*api/v1/jobs/?$", job_lists.JobListView.as_view(), name="api-jobs"),
    re_path(r"^/*api/v1/queue/?$", queue.QueueView.as_view(), name="api-queue"),
    re_path(r"^/*api/v1/queue:preview$", queue.PreviewView.as_view()),
    re_path(r"^/*api/v1/queue:reorder$", queue.ReorderView.as_view()),
    re_path(rf"^/*api/v1/jobs:(?P<act>{'|'.join(batches.ACTS)})$", batches.BatchView.as_view()),
    re_path(rf"^/*api/v1/jobs/{JOB}/?$", jobs.JobView.as_view(), name="api-job"),
    re_path(rf"^/*api/v1/jobs/{JOB}:rerun$", jobs.RerunView.as_view()),
    re_path(rf"^/*api/v1/jobs/{JOB}/events$", events.EventsView.as_view(), name="api-events"),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/preparations$",
        preparations.PreparationsView.as_view(),
        name="api-preparations",
    ),
    re_path(rf"^/*api/v1/jobs/{JOB}/shells$", shells.ShellsView.as_view(), name="api-shells"),
    re_path(rf"^/*api/v1/jobs/{JOB}/shells/(?P<key>[0-9a-f]{{32}})$", shells.ShellView.as_view()),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/shells/(?P<key>[0-9a-f]{{32}})/recording$", recordings.RecordingView.as_view()
    ),
    re_path(rf"^/*api/v1/jobs/{JOB}/stacks$", stacks.StacksView.as_view(), name="api-stacks"),
    re_path(rf"^/*api/v1/jobs/{JOB}/samples$", samples.SamplesView.as_view(), name="api-samples"),
    re_path(rf"^/*api/v1/jobs/{JOB}/reports$", reports.ReportsView.as_view(), name="api-reports"),
    re_path(rf"^/*api/v1/jobs/{JOB}/metrics$", metrics.MetricsView.as_view(), name="api-metrics"),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/replicas/(?P<replica>[a-z0-9-]{{1,40}})/log$",
        log_bytes.LogView.as_view(),
        name="api-log",
    ),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/replicas/(?P<replica>[a-z0-9-]{{1,40}})/log/lines$",
        log_lines.LinesView.as_view(),
        name="api-log-lines",
    ),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/replicas/(?P<replica>[a-z0-9-]{{1,40}})/files$",
        files.FilesView.as_view(),
        name="api-files",
    ),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/replicas/(?P<replica>[a-z0-9-]{{1,40}})/files/content$",
        files.ContentView.as_view(),
    ),
    re_path(rf"^/*api/v1/jobs/{JOB}/outputs/?$", outputs.OutputsView.as_view(), name="api-outputs"),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/outputs/files$",
        outputs.OutputFilesView.as_view(),
        name="api-output-files",
    ),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/outputs/content$",
        outputs.OutputContentView.as_view(),
        name="api-output-content",
    ),
    re_path(rf"^/*api/v1/jobs/{JOB}/log$", log_archive.ArchiveView.as_view(), name="api-archive"),
    re_path(rf"^/*api/v1/jobs/{JOB}/log/earlier$", log_pages.EarlierView.as_view(), name="api-earlier"),
    re_path(rf"^/*api/v1/jobs/{JOB}/log/later$", log_pages.LaterView.as_view(), name="api-later"),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/log/search$",
        log_search.SearchAllView.as_view(),
        name="api-search",
    ),
    re_path(
        rf"^/*api/v1/jobs/{JOB}/replicas/(?P<replica>[a-z0-9-]{{1,40}})/log/search$",
        log_search.SearchView.as_view(),
        name="api-log-search",
    ),
    re_path(r"^/*api/v1/studies:price$", studies.PriceView.as_view()),
    re_path(rf"^/*api/v1/studies/{TUNING}$", studies.StudyView.as_view(), name="api-study"),
    re_path(rf"^/*api/v1/studies/{TUNING}:extend$", studies.ExtendView.as_view()),
    re_path(r"^/*api/v1/hosts/?$", hosts.HostsView.as_view(), name="api-hosts"),
    re_path(r"^/*api/v1/hosts:acceptKeys$", keys.AcceptKeysView.as_view()),
    re_path(rf"^/*api/v1/hosts/{HOST}$", hosts.HostView.as_view(), name="api-host"),
    re_path(rf"^/*api/v1/hosts/{HOST}:(?P<verb>{'|'.join(hosts.ACTS)})$", hosts.ActView.as_view()),
    re_path(r"^/*api/v1/locations/?$", locations.LocationsView.as_view()),
    re_path(rf"^/*api/v1/locations/{HOST.replace('host', 'location')}$", locations.LocationView.as_view()),
    re_path(r"^/*api/v1/machineTypes/?$", machine_types.MachineTypesView.as_view()),
    re_path(r"^/*api/v1/machineTypes/(?P<name>[A-Za-z0-9-]{1,63})$", machine_types.MachineTypeView.as_view()),
    re_path(rf"^/*api/v1/hosts/{HOST}/kept/?$", kept.KeptView.as_view()),
    re_path(
        rf"^/*api/v1/hosts/{HOST}/kept/(?P<kind>[a-z]{{1,20}})/(?P<digest>[0-9a-f]{{64}}):discard$",
        kept.DiscardView.as_view(),
    ),
    re_path(rf"^/*api/v1/hosts/{HOST}/gpus/?$", gpus.GpusView.as_view()),
    re_path(
        rf"^/*api/v1/hosts/{HOST}/gpus/(?P<uuid>[^:]{{1,80}}):(?P<what>recheck|evict|use)$",
        gpus.GpuActView.as_view(),
    ),
    *urls.urlpatterns,
    *storage.urlpatterns,
    re_path(r"^/*api/v1/savedViews/?$", saved_views.SavedViewsView.as_view()),
    re_path(r"^/*api/v1/savedViews/(?P<view_id>[0-9]{1,18})$", saved_views.SavedViewView.as_view()),
    re_path(r"^/*api/v1/search/?$", search.SearchView.as_view(), name="api-search-all"),
    re_path(r"^/*api/v1/recovery/?$", recovery.RecoveryView.as_view()),
    re_path(r"^/*api/v1/recovery:begin$", recovery.BeginView.as_view()),
    re_path(r"^/*api/v1/recovery:confirm$", recovery.ConfirmView.as_view()),
    re_path(r"^/*api/v1/openapi\.json$", openapi.JsonView.as_view(), name="api-json"),
    re_path(r"^/*api/v1/openapi\.yaml$", openapi.YamlView.as_view(), name="api-yaml"),
    re_path(r"^/*v2/entries:list$", log_entries.EntriesView.as_view()),
    re_path(rf"^/*(?:{V}|ui|api|v2)/", unimplemented.UnknownAddress.as_view()),
    re_path(
        r"^/*(?:(?:resumable/)?upload/|download/|batch/)?storage/v1(?:/|$)",
        unimplemented.UnknownAddress.as_view(),
    ),
]
