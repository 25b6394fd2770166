"""The addresses of the pages of people: login, account, invitations and the audit."""

from __future__ import annotations

from django.urls import path

from console.views.people import account, people, session, setup

urlpatterns = [
    path("setup/<str:token>", setup.setup, name="setup"),
    path("login", session.login, name="login"),
    path("logout", session.logout, name="logout"),
    path("theme", session.theme, name="theme"),
    path("language", session.language, name="language"),
    path("account", account.account, name="account"),
    path("account/password", account.password, name="password"),
    path("account/tokens", account.new_token, name="new-token"),
    path("account/tokens/<int:token_id>/revoke", account.revoke_token, name="revoke-token"),
    path("admin/people/", people.people, name="people"),
    path("admin/people/add", people.add, name="add-person"),
    path("admin/people/<int:user_id>/invite", people.invite, name="invite-person"),
    path("admin/people/<int:user_id>/disable", people.disable, name="disable-person"),
    path("admin/people/<int:user_id>/enable", people.enable, name="enable-person"),
    path("admin/people/<int:user_id>/delete", people.delete, name="delete-person"),
    path("admin/people/<int:user_id>/admin", people.set_admin, name="set-admin"),
    path("audit/", people.audit, name="audit"),
    path("invited/<str:token>", people.invited, name="invited"),
]
