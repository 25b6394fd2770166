"""One secret of each kind in the whole product, and a search for each in every place where it must not be.

The search opens every address of the product's own tables as an admin, a submitter, a viewer, a stranger and nobody, so
an address that is new is searched too. test_secrets.py has the life of a job's secrets in both shapes of the product.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import uuid

import pytest

from tests.harness import leaks
from tests.harness.crawl import Visitor
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.product.held_shell import HeldShell
from tests.harness.product.product import PASSWORD
from tests.harness.wait_and_processes import wait_for
from tests.unit.console.auth.test_second_factor import code_of
from tests.unit.jobs.notifications.receivers import Hook, Mail, serving

pytestmark = pytest.mark.slow
# Prints a digest of each value, then each value, and waits for a file.
PROGRAM = """
import hashlib, os, pathlib, sys, time
for name in ("INLINE", "PROJECT", "PERSON"):
    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest(), flush=True)
    print("the value of", name, "is", os.environ[name], flush=True)
while not pathlib.Path(sys.argv[1]).expanduser().exists():
    time.sleep(0.1)
"""
OWN_KEY = "from agents.ssh import keys; print(keys.private_key()._signing_key.encode().hex())"
OF_JOBS = ("inline", "project", "person")


@pytest.fixture
def letters():
    with serving(Mail()) as mail:
        yield mail


@pytest.fixture
def hook():
    with serving(Hook()) as hook:
        yield hook


@pytest.fixture
def planted():
    """The secrets that a test makes up itself. Those that the product makes are added by `people` and `settings`."""
    names = (*OF_JOBS, "password", "smtp", "oidc", "hook address", "registry")
    return {name: leaks.canary(name.replace(" ", "-")) for name in names}


@pytest.fixture
def product(planted, letters, tmp_path):
    file = tmp_path / "oidc-secret"
    file.write_text(planted["oidc"])
    file.chmod(0o600)
    word = base64.urlsafe_b64encode(planted["smtp"].encode()).decode().rstrip("=")
    planted["smtp"] = word
    login_server = {"OIDC_URL": "http://127.0.0.1:9/", "OIDC_CLIENT_ID": "t", "OIDC_CLIENT_SECRET_FILE": file}
    mail = {"SMTP_URL": f"smtp://trainyard:{word}@127.0.0.1:{letters.port}", "MAIL_FROM": "yard@example.org"}
    with Fleet(1) as fleet, Product("apart", **login_server, **mail) as product:
        product.with_admin().with_hosts(fleet)
        yield product


@pytest.fixture
def people(product, planted):
    """Bob submits and has a second factor, Vera looks on, Eve is in no project, and somebody has not logged in."""
    add = [("user", "add", name, "--password-stdin") for name in ("bob", "vera")]
    make = [("token", "create", name) for name in ("bob", "vera")]
    invite = ("user", "add", "zoe", "--no-project", "--invite")
    given = product.commands(*add, *make, invite, stdin=f"{planted['password']}\n" * 2)
    _, _, *tokens, invitation = [text.strip() for text in given]
    planted["invitation"] = re.search(r"/invited/([\w-]+)", invitation)[1]
    ada = Visitor(product.url, "ada", product.client.token).log_in(PASSWORD)
    for name, role in (("bob", "submitter"), ("vera", "viewer")):
        assert ada.ask("PUT", f"/api/v1/projects/default/members/{name}", json={"role": role}).ok
    bob, vera = (
        Visitor(product.url, name, token).log_in(planted["password"])
        for name, token in zip(("bob", "vera"), tokens, strict=True)
    )
    eve = Visitor(product.url, "eve", product.stranger).log_in(PASSWORD)
    planted |= {f"{each.name}'s token": each.token for each in (ada, bob, vera, eve)}
    planted |= with_second_factor(bob)
    return ada, bob, vera, eve, Visitor(product.url)


def with_second_factor(bob):
    bob.send("/account/second-factor", "/account/second-factor/begin")
    page = bob.get("/account/second-factor").text
    key = re.search(r"\b(?:[A-Z2-7]{4} ?){8}\b", page)[0].replace(" ", "")
    shown = bob.send("/account/second-factor", "/account/second-factor", code=code_of(base64.b32decode(key)))
    codes = re.findall(r"<li>([a-z0-9]{4}(?:-[a-z0-9]{4})+)</li>", shown.text)
    assert len(set(codes)) == 10, shown.text
    plain = {f"recovery code {number}, plain": code.replace("-", "") for number, code in enumerate(codes)}
    return {"second factor": key, **plain, **{f"recovery code {n}": code for n, code in enumerate(codes)}}


def of_deployment(product):
    """The keys that the product made for itself, as anybody would find them who got hold of one."""
    environment = {**product.environment(), "DJANGO_SETTINGS_MODULE": "console.settings"}
    script = f"import django; django.setup(); {OWN_KEY}"
    words = [sys.executable, "-c", script]
    made = subprocess.run(
        words, cwd=product.root, env=environment, capture_output=True, text=True, check=True
    )
    files = {path.name: path.read_text().strip() for path in (product.data / "keys").iterdir()}
    return {
        "SSH key": made.stdout.strip(),
        "secret key": files["secret-key"],
        "field key": files["field-key"],
    }


def document(canaries, marker, name):
    body = job_spec(["python3", "-c", PROGRAM, marker], web_access=True, name=name)
    body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"] = [
        {"name": "INLINE", "value": canaries["inline"], "secret": True},
        {"name": "PROJECT", "valueFrom": {"secret": "OF_PROJECT", "of": "project"}},
        {"name": "PERSON", "valueFrom": {"secret": "OF_PERSON"}},
    ]
    return body


def stored(ada, bob, planted, hook):
    """What people give the product to keep: stored secrets, a webhook, a template, an invitation."""
    own, project = "/api/v1/secrets/OF_PERSON", "/api/v1/projects/default/secrets/OF_PROJECT"
    assert bob.ask("PUT", own, json={"value": planted["person"]}).ok
    assert ada.ask("PUT", project, json={"value": planted["project"]}).ok
    registry = "/api/v1/projects/default/imageRegistries/registry.lab:5000"
    assert ada.ask("PUT", registry, json={"username": "ada", "password": planted["registry"]}).ok
    path = "/" + base64.urlsafe_b64encode(planted["hook address"].encode()).decode().rstrip("=")
    planted["hook address"] = path[1:]
    notifications = "/api/v1/projects/default/notifications"
    events = ["succeeded", "failed", "cancelled"]
    given = ada.ask(
        "POST", notifications, json={"way": "hook", "address": hook.url(path=path), "events": events}
    )
    planted["hook secret"] = given.json()["secret"]
    mail = {"way": "mail", "address": "team@example.org", "events": events}
    target = ada.ask("POST", notifications, json=mail).json()
    assert ada.ask("POST", f"/api/v1/notifications/{target['id']}:vouch", json={}).ok
    return target["id"]


def examples(product, job, target, **more):
    """The values with which addresses are filled: what the test has made, and names of things that are not there."""
    [run] = product.runs(job)
    [host] = product.query("SELECT id, name FROM agents_host")
    gpu = product.query("SELECT id, uuid FROM agents_gpu")[0]
    [user] = product.query("SELECT id FROM auth_user WHERE username = 'vera'")
    return {
        **{"job_id": job, "run_id": run["id"], "host_id": host["id"], "host": host["name"]},
        **{"gpu_id": gpu["id"], "uuid": gpu["uuid"], "user_id": user["id"], "user": "vera"},
        **{"project": "default", "location": "default", "replica": "workerpool0-0", "target_id": target},
        **{"target": target, "session_id": "0123456789abcdef", "session": "0123456789abcdef", "token": 1},
        **{
            "registry": "registry.lab:5000",
            "bucket": "ours",
            "sha256": "0" * 64,
            "how": "copyTo",
            "to": "ours",
            "new_name": "copy",
        },
        **{"ticket": "no-ticket", "model_id": "no-model", "model": "no-model", "number": 1},
        **{"pipeline_id": "7", "tuning_id": "7", "operation": "7", "whole": "OF_PROJECT/compose"},
        **dict.fromkeys(("token_id", "passkey_id", "template_id", "view_id", "stray_id", "type_id"), 1),
        **{"kind": "blobs", "digest": "a" * 64},
        **{"topic": "jobs", "what": "recheck", "act": "cancel", "verb": "check", "name": "OF_PROJECT"},
        **more,
    }


def queries(job, other):
    """Addresses that show something else by their query."""
    return [
        f"/jobs/compare?job={job}&job={other}",
        f"/jobs/{job}/diff?with={other}",
        *(f"/{path}?q=value" for path in ("search", "api/v1/search", f"api/v1/jobs/{job}/log/search")),
        f"/api/v1/jobs/{job}/replicas/workerpool0-0/log/search?q=value",
        *(f"/api/v1/jobs/{job}/log?format={form}" for form in ("text", "zip")),
        f"/jobs/{job}/files/workerpool0-0?path=.",
        "/jobs/?view=all&label=a",
        "/hosts/gpus?view=table",
        *(
            f"{path}?format={form}"
            for path in ("/audit/export", "/api/v1/audit")
            for form in ("csv", "jsonl")
        ),
        *(f"/hosts/{path}" for path in ("occupancy?view=table", "occupancy.csv?span=month")),
        f"/jobs/{job}/metrics?span=all",
        f"/jobs/{job}/events?of=job",
    ]


def test_each_secret_is_nowhere_but_where_it_belongs(product, planted, people, letters, hook):
    ada, bob, *_ = people
    with leaks.BrokerWatch(product) as broker:
        target = stored(ada, bob, planted, hook)
        marker = f"secrets-go-{uuid.uuid4().hex[:8]}"
        open_name = leaks.canary("name")[:60]
        [job, other] = [submitted(bob, document(planted, f"~/{marker}", name)) for name in ("job", open_name)]
        for each in (job, other):
            product.client.wait(each, "RUNNING")
            for name in OF_JOBS:
                product.client.wait_for_log(each, hashlib.sha256(planted[name].encode()).hexdigest())
            product.client.wait_for_log(each, "the value of PERSON is")
        [run] = product.runs(job)
        shell = HeldShell(product.client, run["id"]).connect()
        shell.type(b"echo rea''dy\n").seen(b"ready")
        planted |= {f"{each.name}'s session": each.session for each in people[:4]}
        kept = of_deployment(product)
        values = examples(product, job, target, key=shell.key)
        seen = {}
        for each in people:
            seen |= each.opened(values, queries(job, other), fragments=each in (ada, bob))
        assert leaks.found(seen, planted | kept) == [], "in what visitors are shown"
        assert_sockets_told(seen, job, shell.key)
        assert shown_to(seen, open_name) == {
            (kind, name)
            for name in ("ada", "bob", "vera")
            for kind in ("page", "answer", "socket", "fragment")
            if (kind, name) != ("fragment", "vera")
        }
        # Who may open a shell may read its values there. The recording has none of them.
        shell.type(b'echo "$INLINE $PROJECT $PERSON" pri""nted\n').seen(b"printed")
        inside = leaks.found(leaks.places_of(product), planted | kept)
        assert [hit for hit in inside if not belongs(*hit)] == [], "in the product while jobs run"
        assert outside(product, planted | kept) == [], "on the hosts"
        with_values = leaks.environments(planted | kept)
        assert {name for name, line in with_values if not holds(name, line)} == set(), with_values
        assert {name for name, _ in with_values} >= set(OF_JOBS), "the search finds what is there"
        shell.type(b"exit\n").until(lambda shell: shell.over, "the end of the shell")
        for host in product.fleet:
            host.write(f"{host.home}/{marker}", "")
        for each in (job, other):
            product.client.wait(each, "SUCCEEDED")
        wait_for(lambda: hook.heard, "a message of the end", dump=product.tail)
        wait_for(lambda: len(letters.letters) > 1, "a letter about the end", dump=product.tail)
    sent = {f"letter {number}": letter for number, (_, letter) in enumerate(letters.letters)}
    sent |= {f"message {number}": body for number, (_, _, body) in enumerate(hook.heard)}
    assert leaks.found({**sent, "the broker": broker.text}, planted | kept) == []
    recorded = recording_of(product, bob, job, shell.key)
    assert "printed" in recorded
    afterwards = {"the recording": recorded, **bob.opened(values, queries(job, other))}
    assert leaks.found(afterwards, planted | kept) == [], "in what is shown after the job"
    product.check()


def assert_sockets_told(seen, job, key):
    """A log comes with its secrets masked, and a shell with what it shows: silent sockets would leak nothing."""
    for name in ("ada", "bob", "vera"):
        for path in (f"/ws/jobs/{job}/log", f"/ws/jobs/{job}/log/workerpool0-0"):
            told = seen[f"socket {path} as {name}"].decode()
            for secret in ("INLINE", "PROJECT", "PERSON"):
                assert re.search(rf"the value of {secret} is \*{{12,}}", told), (path, name, told)
    for name in ("ada", "bob"):
        told = seen[f"socket /ws/shells/{key} as {name}"]
        assert b'"ready"' in told and b"ready\r" in told, (name, told)


def recording_of(product, visitor, job, key):
    """What the shell showed, once all of it is here."""
    whole = f"SELECT 1 FROM jobs_shellsession WHERE key = '{key}' AND recording_state = 'whole'"
    wait_for(lambda: product.query(whole), "the recording of the shell", dump=product.tail)
    return visitor.ask("GET", f"/api/v1/jobs/{job}/shells/{key}/recording").text


def shown_to(seen, name):
    """Where a name is found that members of the project may read, and nobody else. The search sees what is there."""
    places = [place.split() for _, place in leaks.found(seen, {"name": name})]
    return {(words[0], words[-1]) for words in places}


def submitted(visitor, body):
    answer = visitor.ask("POST", "/v1/projects/default/locations/default/customJobs", json=body)
    assert answer.ok, answer.text
    return int(answer.json()["name"].rsplit("/", 1)[1])


def belongs(name, place):
    """Where a secret may be: keys in their files, and the secret of the login server in a file of the admin's."""
    return name in ("secret key", "field key") and place == f"the file keys/{name.replace(' ', '-')}"


def holds(name, line):
    """Whether this process has the secret by right: a run or its shell, or a process of ours with its settings."""
    if name == "smtp":
        return any(word in line for word in ("trainyard: ", "console", "celery", "fork_server"))
    return name in OF_JOBS and line.split()[0].rpartition("/")[2] in ("python3", "bash")


def outside(product, secrets):
    """Secrets on hosts, but for the orders and the output of the runs that they are for."""
    own = ("order.json", "log")
    hits = leaks.on_hosts(product, secrets)
    return [hit for hit in hits if not (hit[0] in OF_JOBS and "/runs/" in hit[1] and hit[1].endswith(own))]
