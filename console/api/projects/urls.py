"""Addresses about projects and people: members, quotas, usage, notifications and the audit."""

from __future__ import annotations

from django.urls import re_path

from console.api.projects import (
    account,
    artifacts,
    buckets,
    image_registries,
    job_templates,
    notifications,
    people,
    projects,
    quotas,
    secrets,
    sessions,
    tokens,
    usage,
)

PROJECT = r"projects/(?P<project>[^/:]{1,63})"
USER = r"(?P<user>[\w.@+-]{1,150})"
TARGET = r"(?P<target>[0-9]{1,18})"
SECRET = r"(?P<name>[^/:]{1,200})"
LOCATION = r"locations/(?P<location>[A-Za-z0-9_-]{1,63})"
REGISTRY = r"(?P<registry>[^/]{1,260})"
BUCKET = r"(?P<bucket>[a-z0-9._-]{1,63})"
OBJECT = r"(?P<name>.{1,1024})"
SHA256 = r"(?P<sha256>[0-9a-f]{64})"
KEY = r"(?P<key>[A-Za-z0-9_]{1,63})"

urlpatterns = [
    re_path(r"^/*api/v1/projects/?$", projects.ProjectsView.as_view(), name="api-projects"),
    re_path(rf"^/*api/v1/{PROJECT}/?$", projects.ProjectView.as_view(), name="api-project"),
    re_path(rf"^/*api/v1/{PROJECT}/members/?$", projects.MembersView.as_view(), name="api-members"),
    re_path(rf"^/*api/v1/{PROJECT}/members/{USER}$", projects.MemberView.as_view(), name="api-member"),
    re_path(rf"^/*api/v1/{PROJECT}/quotas/?$", quotas.QuotasView.as_view(), name="api-quotas"),
    re_path(rf"^/*api/v1/{PROJECT}/quotas/{KEY}$", quotas.QuotaView.as_view(), name="api-quota"),
    re_path(
        rf"^/*api/v1/{PROJECT}/eachMember/quotas/{KEY}$",
        quotas.EachMemberQuotaView.as_view(),
        name="api-each-member-quota",
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/members/{USER}/quotas/{KEY}$",
        quotas.MemberQuotaView.as_view(),
        name="api-member-quota",
    ),
    re_path(r"^/*api/v1/defaultQuotas/?$", quotas.DefaultsView.as_view(), name="api-default-quotas"),
    re_path(
        rf"^/*api/v1/defaultQuotas/eachMember/{KEY}$",
        quotas.DefaultView.as_view(each=True),
        name="api-default-quota-each",
    ),
    re_path(rf"^/*api/v1/defaultQuotas/{KEY}$", quotas.DefaultView.as_view(), name="api-default-quota"),
    re_path(
        rf"^/*api/v1/{PROJECT}/secrets/?$",
        secrets.ProjectSecretsView.as_view(),
        name="api-project-secrets",
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/secrets/{SECRET}$",
        secrets.ProjectSecretView.as_view(),
        name="api-project-secret",
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/imageRegistries/?$",
        image_registries.ProjectRegistriesView.as_view(),
        name="api-project-registries",
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/imageRegistries/{REGISTRY}$",
        image_registries.ProjectRegistryView.as_view(),
        name="api-project-registry",
    ),
    re_path(
        rf"^/*api/v1/{LOCATION}/imageRegistries/?$",
        image_registries.LocationRegistriesView.as_view(),
        name="api-location-registries",
    ),
    re_path(
        rf"^/*api/v1/{LOCATION}/imageRegistries/{REGISTRY}$",
        image_registries.LocationRegistryView.as_view(),
        name="api-location-registry",
    ),
    re_path(r"^/*api/v1/secrets/?$", secrets.OwnSecretsView.as_view(), name="api-own-secrets"),
    re_path(rf"^/*api/v1/secrets/{SECRET}$", secrets.OwnSecretView.as_view(), name="api-own-secret"),
    re_path(rf"^/*api/v1/{PROJECT}/artifacts/?$", artifacts.ArtifactsView.as_view(), name="api-artifacts"),
    re_path(
        rf"^/*api/v1/{PROJECT}/artifacts/{SHA256}$", artifacts.ArtifactView.as_view(), name="api-artifact"
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/artifacts/{SHA256}/content$",
        artifacts.ContentView.as_view(),
        name="api-artifact-content",
    ),
    re_path(rf"^/*api/v1/{PROJECT}/buckets/?$", buckets.BucketsView.as_view(), name="api-buckets"),
    re_path(rf"^/*api/v1/{PROJECT}/buckets/{BUCKET}$", buckets.BucketView.as_view(), name="api-bucket"),
    re_path(
        rf"^/*api/v1/{PROJECT}/buckets/{BUCKET}/objects/?$", buckets.ObjectsView.as_view(), name="api-objects"
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/buckets/{BUCKET}/objects/{OBJECT}$",
        buckets.ObjectView.as_view(),
        name="api-object",
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/templates/?$",
        job_templates.TemplatesView.as_view(),
        name="api-project-templates",
    ),
    re_path(
        rf"^/*api/v1/{PROJECT}/templates/{SECRET}$",
        job_templates.TemplateView.as_view(),
        name="api-project-template",
    ),
    re_path(r"^/*api/v1/templates/?$", job_templates.TemplatesView.as_view(), name="api-own-templates"),
    re_path(rf"^/*api/v1/templates/{SECRET}$", job_templates.TemplateView.as_view(), name="api-own-template"),
    re_path(rf"^/*api/v1/{PROJECT}/notifications/?$", notifications.TargetsView.as_view()),
    re_path(rf"^/*api/v1/{PROJECT}/idleRule$", notifications.IdleRuleView.as_view()),
    re_path(r"^/*api/v1/notifications/?$", notifications.TargetsView.as_view()),
    re_path(rf"^/*api/v1/notifications/{TARGET}$", notifications.TargetView.as_view()),
    re_path(rf"^/*api/v1/notifications/{TARGET}:test$", notifications.TestView.as_view()),
    re_path(rf"^/*api/v1/notifications/{TARGET}:ask$", notifications.AskView.as_view()),
    re_path(rf"^/*api/v1/notifications/{TARGET}:vouch$", notifications.VouchView.as_view()),
    re_path(r"^/*api/v1/people/?$", people.PeopleView.as_view()),
    re_path(rf"^/*api/v1/people/{USER}$", people.PersonView.as_view()),
    re_path(rf"^/*api/v1/people/{USER}:invite$", people.InviteView.as_view()),
    re_path(rf"^/*api/v1/people/{USER}:endSessions$", people.EndSessionsView.as_view()),
    re_path(rf"^/*api/v1/people/{USER}:resetSecondFactor$", people.SecondFactorView.as_view()),
    re_path(r"^/*api/v1/sessions/?$", sessions.SessionsView.as_view()),
    re_path(r"^/*api/v1/sessions:endAll$", sessions.EndSessionsView.as_view()),
    re_path(r"^/*api/v1/sessions/(?P<session>[0-9a-f]{16})$", sessions.SessionView.as_view()),
    re_path(r"^/*api/v1/account/?$", account.AccountView.as_view()),
    re_path(r"^/*api/v1/account/token$", account.OwnTokenView.as_view()),
    re_path(r"^/*api/v1/deviceLogins/?$", account.DeviceLoginsView.as_view()),
    re_path(r"^/*api/v1/deviceLogins:token$", account.DeviceTokenView.as_view()),
    re_path(r"^/*api/v1/tokens/?$", tokens.TokensView.as_view()),
    re_path(r"^/*api/v1/tokens/(?P<token>[0-9]{1,18})$", tokens.TokenView.as_view()),
    re_path(rf"^/*api/v1/{PROJECT}/usage/?$", usage.UsageView.as_view(), name="api-usage-of-project"),
    re_path(r"^/*api/v1/usage/?$", usage.UsageView.as_view(), name="api-usage"),
    re_path(r"^/*api/v1/audit/?$", usage.AuditView.as_view(), name="api-audit"),
]
