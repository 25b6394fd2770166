"""The addresses of the pages of people: login, account, invitations and the audit."""

from __future__ import annotations

from django.urls import path

from console.views.people import (
    account,
    oidc,
    passkeys,
    people,
    preferences,
    second_factor,
    security,
    session,
    setup,
)

urlpatterns = [
    path("setup/<str:token>", setup.setup, name="setup"),
    path("login", session.login, name="login"),
    path("login/code", session.code, name="login-code"),
    path("login/oidc", oidc.begin, name="login-oidc"),
    path("login/oidc/callback", oidc.callback, name="oidc-callback"),
    path("account/oidc/connect", oidc.connect, name="connect-oidc"),
    path("account/oidc/disconnect", oidc.disconnect, name="disconnect-oidc"),
    path("account/oidc/confirm", oidc.confirm, name="confirm-by-oidc"),
    path("login/passkey/begin", passkeys.begin_login, name="begin-login-passkey"),
    path("login/passkey", passkeys.login, name="login-passkey"),
    path("account/passkeys/begin", passkeys.begin_adding, name="begin-passkey"),
    path("account/passkeys", passkeys.add, name="add-passkey"),
    path("account/passkeys/confirm", passkeys.confirm, name="confirm-by-passkey"),
    path("account/passkeys/<int:passkey_id>/remove", passkeys.remove, name="remove-passkey"),
    path("logout", session.logout, name="logout"),
    path("theme", session.theme, name="theme"),
    path("language", session.language, name="language"),
    path("account", account.account, name="account"),
    path("account/preferences", preferences.preferences, name="preferences"),
    path("account/password", account.password, name="password"),
    path("account/tokens", account.new_token, name="new-token"),
    path("account/tokens/<int:token_id>/revoke", account.revoke_token, name="revoke-token"),
    path("account/security", security.security, name="security"),
    path("account/second-factor", second_factor.second_factor, name="second-factor"),
    path("account/second-factor/begin", second_factor.begin, name="begin-second-factor"),
    path("account/second-factor/remove", second_factor.remove, name="remove-second-factor"),
    path("account/second-factor/codes", second_factor.renew_codes, name="new-recovery-codes"),
    path("account/sessions/end", security.end_sessions, name="end-sessions"),
    path("account/sessions/<str:session_id>/end", security.end_session, name="end-session"),
    path("admin/people/", people.people, name="people"),
    path("admin/people/add", people.add, name="add-person"),
    path("admin/people/<int:user_id>/invite", people.invite, name="invite-person"),
    path("admin/people/<int:user_id>/disable", people.disable, name="disable-person"),
    path("admin/people/<int:user_id>/enable", people.enable, name="enable-person"),
    path("admin/people/<int:user_id>/second-factor", people.reset_second_factor, name="reset-second-factor"),
    path("admin/people/<int:user_id>/delete", people.delete, name="delete-person"),
    path("admin/people/<int:user_id>/admin", people.set_admin, name="set-admin"),
    path("audit/", people.audit, name="audit"),
    path("invited/<str:token>", people.invited, name="invited"),
]
