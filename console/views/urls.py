"""The addresses of the pages."""

from __future__ import annotations

from django.urls import path

from console.views import (
    account,
    help,
    home,
    hosts,
    jobs,
    logs,
    machines,
    maintenance,
    new_job,
    session,
    setup,
    shells,
)

urlpatterns = [
    path("", home.home, name="home"),
    path("welcome", home.welcome, name="welcome"),
    path("help/training", help.training, name="help-training"),
    path("setup/<str:token>", setup.setup, name="setup"),
    path("login", session.login, name="login"),
    path("logout", session.logout, name="logout"),
    path("theme", session.theme, name="theme"),
    path("account", account.account, name="account"),
    path("account/password", account.password, name="password"),
    path("account/tokens", account.new_token, name="new-token"),
    path("account/tokens/<int:token_id>/revoke", account.revoke_token, name="revoke-token"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/new", new_job.new, name="new-job"),
    path("jobs/sample", new_job.sample, name="sample-job"),
    path("jobs/<int:job_id>/", jobs.job, name="job"),
    path("jobs/<int:job_id>/history", jobs.history, name="job-history"),
    path("jobs/<int:job_id>/cancel", jobs.cancel, name="cancel-job"),
    path("jobs/<int:job_id>/clone", new_job.clone, name="clone-job"),
    path("jobs/<int:job_id>/delete", jobs.delete, name="delete-job"),
    path("jobs/<int:job_id>/log/<str:replica>", logs.log, name="log"),
    path("jobs/<int:job_id>/shell/<str:run_id>", shells.shell, name="shell"),
    path("hosts/", hosts.hosts, name="hosts"),
    path("hosts/add", hosts.add, name="add-host"),
    path("hosts/paste", hosts.paste, name="paste-hosts"),
    path("hosts/<int:host_id>/", hosts.host, name="host"),
    path("hosts/<int:host_id>/_checklist", hosts.live, name="host-live"),
    path("hosts/<int:host_id>/accept", hosts.accept, name="accept-key"),
    path("hosts/<int:host_id>/check", hosts.check, name="check-host"),
    path("hosts/<int:host_id>/remove", hosts.remove, name="remove-host"),
    path("hosts/<int:host_id>/maintenance", maintenance.maintenance, name="maintain-host"),
    path("hosts/<int:host_id>/cordon", maintenance.cordon, name="cordon-host"),
    path("hosts/<int:host_id>/uncordon", maintenance.uncordon, name="uncordon-host"),
    path("machines/", machines.machines, name="machines"),
    path("machines/<int:type_id>/remove", machines.remove, name="remove-machine-type"),
    path("hosts/<int:host_id>/gpus/<int:gpu_id>/<slug:what>", hosts.gpu_act, name="gpu-act"),
]
