"""The addresses of the pages of studies (hyperparameter tuning jobs)."""

from __future__ import annotations

from django.urls import path

from console.views.studies import compare_studies, extend_study, new_study, studies

urlpatterns = [
    path("studies/", studies.studies, name="studies"),
    path("studies/compare", compare_studies.compare_studies, name="compare-studies"),
    path("studies/new", new_study.new, name="new-study"),
    path("studies/new/summary", new_study.summary, name="new-study-summary"),
    path("studies/<int:tuning_id>/", studies.overview, name="study"),
    path("studies/<int:tuning_id>/parameters", studies.parameters, name="study-parameters"),
    path("studies/<int:tuning_id>/contour", studies.contour, name="study-contour"),
    path("studies/<int:tuning_id>/curves", studies.curves, name="study-curves"),
    path("studies/<int:tuning_id>/scatter", studies.scatter, name="study-scatter"),
    path("studies/<int:tuning_id>/timeline", studies.timeline, name="study-timeline"),
    path("studies/<int:tuning_id>/spec", studies.spec, name="study-spec"),
    path("studies/<int:tuning_id>/trials.csv", studies.trials_csv, name="study-csv"),
    path("studies/<int:tuning_id>/trials.json", studies.trials_json, name="study-json"),
    path("studies/<int:tuning_id>/cancel", studies.cancel, name="cancel-study"),
    path("studies/<int:tuning_id>/extend", extend_study.extend, name="extend-study"),
    path("studies/<int:tuning_id>/delete", studies.delete, name="delete-study"),
]
