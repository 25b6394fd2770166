"""Logging in, in a browser: a second factor, the list of sessions, and a real login server behind a strict policy.

Each page is judged as in the first run: WCAG in light and dark, nothing wider than a phone, nothing blocked.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from playwright.sync_api import expect

from tests.browser.test_first_run import judge
from tests.harness import oidc_server
from tests.harness.browser import log_in
from tests.harness.product import Product

pytestmark = pytest.mark.timeout(600)
GROUPS = {"olga": {"groups": ["trainers"]}}


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    secret = tmp_path_factory.mktemp("oidc") / "secret"
    secret.write_text(oidc_server.SECRET)
    secret.chmod(0o600)
    port = oidc_server.free_port()
    settings = {
        "OIDC_URL": f"http://127.0.0.1:{port}",
        "OIDC_CLIENT_ID": oidc_server.CLIENT,
        "OIDC_CLIENT_SECRET_FILE": secret,
        "OIDC_NAME": "Keycloak",
        "OIDC_CREATE": "true",
        "OIDC_GROUPS": "trainers=default:submitter",
    }
    with Product(**settings) as product:
        product.with_admin()
        with oidc_server.oidc_server(f"{product.url}/login/oidc/callback", GROUPS, port):
            yield product
        print(product.tail())


@pytest.fixture
def page(page):
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.on(
        "console",
        lambda said: page.problems.append(said.text) if "Content Security Policy" in said.text else None,
    )
    return page


def test_a_second_factor_from_the_qr_code_to_the_login(page, yard, chromium):
    log_in(page, yard.url)
    page.goto(f"{yard.url}/account/security")
    judge(page, "security without a second factor")
    page.get_by_role("button", name="Set up a second factor").click()
    expect(page.get_by_role("img", name=re.compile("QR code"))).to_be_visible()
    judge(page, "the QR code")
    key = page.locator(".copy code").inner_text()
    totp = TOTP(_bytes(key), 6, SHA1(), 30)
    now = page.evaluate("Date.now() / 1000")
    page.get_by_role("textbox", name="Code").fill(totp.generate(int(now)).decode())
    page.get_by_role("button", name="Turn it on").click()
    expect(page.get_by_role("heading", name="Your recovery codes")).to_be_visible()
    recovery = page.locator("main li").first.inner_text()
    judge(page, "recovery codes")
    page.get_by_role("link", name="I have kept them").click()
    expect(page.get_by_text("10 recovery codes are left.")).to_be_visible()
    other = chromium.new_context().new_page()
    other.goto(f"{yard.url}/login")
    other.get_by_label("Name", exact=True).fill("ada")
    other.get_by_label("Password").fill(yard.secrets["password"])
    other.get_by_role("button", name="Log in", exact=True).click()
    expect(other.get_by_role("heading", name="Your code")).to_be_visible()
    judge(other, "the second step of the login")
    other.get_by_role("textbox", name="Code").fill(recovery)
    other.get_by_role("button", name="Log in").click()
    other.wait_for_url(f"{yard.url}/**")
    expect(other.get_by_role("link", name="ada")).to_be_visible()
    page.reload()
    expect(page.get_by_text("9 recovery codes are left.")).to_be_visible()
    judge(page, "security with two sessions")
    page.get_by_role("button", name="Log out everywhere").click()
    expect(page.get_by_text("1 session ended.")).to_be_visible()
    other.goto(f"{yard.url}/jobs/")
    expect(other.get_by_role("heading", name="Log in")).to_be_visible()
    other.context.close()
    page.goto(f"{yard.url}/account")
    judge(page, "account")


@pytest.mark.parametrize("scripts", [True, False])
def test_the_way_to_the_login_server_and_back(chromium, yard, scripts):
    """The form is answered by a page that goes on: the policy stops a redirect of a form to another site."""
    context = chromium.new_context(java_script_enabled=scripts)
    page, refused = context.new_page(), []
    page.on("console", lambda said: refused.append(said.text) if "form-action" in said.text else None)
    page.goto(f"{yard.url}/login")
    page.get_by_role("button", name="Log in with Keycloak").click()
    page.wait_for_url(re.compile("/interaction/"))
    page.locator("[name=login]").fill("olga")
    page.locator("[name=password]").fill("any")
    page.locator("[type=submit]").click()
    page.wait_for_url(re.compile("/interaction/"))
    page.locator("button[type=submit], [type=submit]").first.click()
    page.wait_for_url(f"{yard.url}/**")
    expect(page.get_by_role("link", name="olga")).to_be_visible()
    page.goto(f"{yard.url}/account/security")
    expect(page.get_by_text("by single sign-on").first).to_be_visible()
    expect(page.get_by_text("Connected since")).to_be_visible()
    assert refused == []
    if scripts:
        judge(page, "security with a login server")
    context.close()


# As if an hour had gone by since everybody gave the password.
AGE = """
from console.auth.session_store import SessionStore
from console.models import Session
for row in Session.objects.all():
    data = {**SessionStore().decode(row.session_data), "confirmed_at": 0.0}
    Session.objects.filter(pk=row.pk).update(session_data=SessionStore().encode(data))
"""


def age_the_logins(yard):
    subprocess.run([sys.executable, "manage.py", "shell", "-c", AGE], env=yard.environment(), check=True)


def test_a_passkey_logs_in(chromium, yard):
    """Chromium has a device of its own for tests. WebAuthn takes `localhost` for a name, and no number."""
    url = yard.url.replace("127.0.0.1", "localhost")
    page = chromium.new_context().new_page()
    device = page.context.new_cdp_session(page)
    device.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "isUserVerified": True}
    options |= {"hasResidentKey": True, "hasUserVerification": True, "automaticPresenceSimulation": True}
    device.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    log_in(page, url, "eve")
    page.goto(f"{url}/account/security")
    page.get_by_label("Name of the new passkey").fill("laptop")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_text("The passkey “laptop” is added.")).to_be_visible()
    judge(page, "security with a passkey")
    page.get_by_role("button", name="Log out", exact=True).first.click()
    judge(page, "login with passkeys")
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.get_by_role("link", name="eve")).to_be_visible()
    page.goto(f"{url}/account/security")
    expect(page.get_by_text("by passkey").first).to_be_visible()
    age_the_logins(yard)
    page.get_by_role("button", name="Remove laptop").click()
    expect(page.get_by_role("button", name="Confirm with a passkey")).to_be_visible()
    judge(page, "confirm with a passkey")
    page.get_by_role("button", name="Confirm with a passkey").click()
    expect(page.get_by_text("The passkey is removed.")).to_be_visible()
    page.get_by_role("button", name="Log out", exact=True).first.click()
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.get_by_text("This passkey does not open an account here.")).to_be_visible()
    page.goto(f"{yard.url}/login")
    expect(page.get_by_role("button", name="Log in with a passkey")).to_have_count(0)
    page.context.close()


def _bytes(key):
    return base64.b32decode(key.replace(" ", ""))
