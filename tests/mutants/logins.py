"""Safeguards of logins: codes, passkeys, login servers, and the rights of tokens (safeguards.py)."""

from __future__ import annotations

from tests.mutants.safeguard import Safeguard

AUTH = "tests/unit/console/auth"

LOGINS = (
    Safeguard(
        "code-good-once",
        "console/auth/login/second_factor.py",
        "SecondFactor.objects.filter(pk=row.pk, used_step__lt=step)",
        "SecondFactor.objects.filter(pk=row.pk)",
        (f"{AUTH}/test_second_factor.py::test_a_code_is_good_once_and_no_older_one_after_it",),
    ),
    Safeguard(
        "wrong-codes-counted-for-the-account",
        "console/auth/login/second_factor.py",
        'account = f"code:{user.pk}"',
        "account = throttle.address_of(request)",
        (
            f"{AUTH}/test_second_factor.py"
            "::test_wrong_codes_are_limited_for_the_account_and_not_undone_by_the_password",
        ),
    ),
    Safeguard(
        "second-step-needs-the-same-password",
        "console/auth/login/login_steps.py",
        'if user is None or not constant_time_compare(user.get_session_auth_hash(), note["password"]):',
        "if user is None:",
        (f"{AUTH}/test_second_factor.py::test_the_second_step_waits_ten_minutes_and_for_the_same_password",),
    ),
    Safeguard(
        "copied-passkey",
        "console/auth/login/passkeys.py",
        "grown = Q(counter__lt=counter) if counter else Q(counter=0)",
        "grown = Q()",
        (f"{AUTH}/test_passkeys.py::test_a_copied_key_is_refused_by_its_counter",),
    ),
    Safeguard(
        "passkey-for-our-page-only",
        "console/auth/login/passkeys.py",
        "verify_origin=lambda origin: origin == site.origin",
        "verify_origin=lambda origin: True",
        (f"{AUTH}/test_passkeys.py::test_a_signature_for_another_page_or_without_a_finger_is_refused",),
    ),
    Safeguard(
        "token-of-this-login",
        "console/auth/login/oidc_server.py",
        'if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):',
        "if False:",
        (f"{AUTH}/test_oidc.py::test_a_token_that_is_not_for_this_login_is_refused",),
    ),
    Safeguard(
        "answer-of-this-browser",
        "console/views/people/oidc.py",
        "return question if is_recent and is_answer else None",
        "return question if is_recent else None",
        (f"{AUTH}/test_oidc.py::test_an_answer_is_good_once_and_in_its_own_browser",),
    ),
    Safeguard(
        "token-keeps-to-its-scope",
        "console/auth/access.py",
        "return _of_person(user, subject) & BY_SCOPE[scopes.of(user).scope]",
        "return _of_person(user, subject)",
        (f"{AUTH}/test_token_scopes.py::test_a_token_does_no_more_than_its_scopes",),
    ),
    Safeguard(
        "shells-end-with-their-session",
        "console/auth/sessions.py",
        "shells.want_close(shell, LOGGED_OUT, now)",
        "pass",
        (f"{AUTH}/test_session_list.py::test_log_out_everywhere_ends_sockets_and_shells",),
    ),
)
