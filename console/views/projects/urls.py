"""The addresses of the pages of projects, usage, notifications and secrets."""

from __future__ import annotations

from django.urls import path

from console.views.projects import (
    image_registries,
    notifications,
    projects,
    secrets,
    switch,
    unsubscribe,
    usage,
)

urlpatterns = [
    path("account/notifications", notifications.page, name="notifications"),
    path("account/notifications/add", notifications.add, name="add-notification"),
    path("account/notifications/log", notifications.log, name="notification-log"),
    path("projects/<slug:project>/notifications", notifications.page, name="project-notifications"),
    path("projects/<slug:project>/notifications/add", notifications.add, name="add-project-notification"),
    path("projects/<slug:project>/notifications/log", notifications.log, name="project-notification-log"),
    path("projects/<slug:project>/notifications/idle", notifications.idle_rule, name="idle-rule"),
    path("notifications/<int:target_id>/change", notifications.change, name="change-notification"),
    path("notifications/<int:target_id>/test", notifications.test, name="test-notification"),
    path("notifications/<int:target_id>/remove", notifications.remove, name="remove-notification"),
    path("notifications/<int:target_id>/ask", notifications.ask, name="ask-notification"),
    path("notifications/<int:target_id>/vouch", notifications.vouch, name="vouch-notification"),
    path("notified/<str:token>", notifications.confirm, name="confirm-notifications"),
    path("unsubscribe/<str:token>", unsubscribe.unsubscribe, name="unsubscribe"),
    path("project", switch.switch, name="choose-project"),
    path("projects/", projects.projects, name="projects"),
    path("projects/new", projects.new, name="new-project"),
    path("projects/<str:project>/", projects.project, name="project"),
    path("projects/<str:project>/settings", projects.settings, name="project-settings"),
    path("projects/<str:project>/archive", projects.archive, name="archive-project"),
    path("projects/<str:project>/members", projects.set_member, name="set-member"),
    path("projects/<str:project>/members/<int:user_id>/remove", projects.remove_member, name="remove-member"),
    path("projects/<str:project>/quotas", projects.set_quota, name="set-quota"),
    path("projects/<slug:project>/secrets", secrets.secrets, name="project-secrets"),
    path("projects/<slug:project>/secrets/remove", secrets.remove, name="remove-project-secret"),
    path("projects/<slug:project>/registries", image_registries.of_project, name="project-registries"),
    path("account/secrets", secrets.secrets, name="own-secrets"),
    path("account/secrets/remove", secrets.remove, name="remove-own-secret"),
    path("usage/", usage.usage, name="usage"),
    path("usage/report.csv", usage.as_csv, name="usage-csv"),
    path("admin/quotas/", projects.default_quotas, name="default-quotas"),
]
