"""What exists and what does not are the same for a stranger: status, body and headers, at every address there is.

The addresses come from the product's own tables (tests/harness/addresses.py). A stranger is somebody of another
project, of no project, nobody, or a token that is good for another project only.
"""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from jobs.models import Bucket, Membership
from jobs.notifications import targets
from tests.harness import addresses
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.conftest import browser, cast, no_host_answers, project
from tests.unit.console.views.example_rows import (
    a_doubted_run,
    a_host,
    a_job,
    a_pipeline,
    a_shell,
    a_template,
    a_tuning_job,
)

__all__ = ["browser", "cast", "no_host_answers", "project"]

# What belongs to a project, so that others must not learn whether it is there; with something that is not there.
OF_PROJECT = {"job_id": 1, "run_id": "1-workerpool0-0-a1-r0", "project": "no-project", "target_id": 7}
OF_PROJECT |= {"target": 7, "template_id": 7, "key": "f" * 32}
OF_PROJECT |= {
    "model_id": "no-model",
    "model": "no-model",
    "pipeline_id": "7",
    "tuning_id": "7",
    "bucket": "no-bucket",
}
# What stands in each answer anew: padding, a token against forged forms, a time.
CHANGING = re.compile(
    rb'<!-- .*? -->|"csrfmiddlewaretoken" value="[^"]*"|"served-at" content="[^"]*"|data-still="[^"]*"'
)
WAYS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def there(cast, project, no_host_answers):
    host = a_host(gpus=1)
    job = a_job(project, cast.bob, host=host)
    run, now = job.runs.get(), timezone.now()
    target = targets.add(project, "slack", "https://x.example/", [], 1.0, "alice", now)[0].pk
    Membership.objects.create(project=project, user=User.objects.create_user("yves"), role="viewer")
    pipeline = a_pipeline(job, model_id="classifier")
    Bucket.objects.create(name="ours", project=project, created_at=now, created_by="alice")
    return {
        **{"job_id": job.pk, "run_id": run.pk, "project": "default", "target_id": target, "target": target},
        **{"template_id": a_template(project, "t").pk, "key": a_shell(run, cast.bob).key},
        **{"host_id": host.pk, "host": host.name, "gpu_id": host.gpus.get().pk, "uuid": host.gpus.get().uuid},
        **{
            "stray_id": a_doubted_run(host).pk,
            "replica": "workerpool0-0",
            "location": "default",
            "user": "yves",
        },
        **{
            "user_id": cast.bella.pk,
            "session_id": "0" * 16,
            "session": "0" * 16,
            "topic": "jobs",
            "name": "t",
        },
        **{"what": "recheck", "act": "cancel", "verb": "check", "token": 1, "registry": "ghcr.io"},
        **{"kind": "blobs", "digest": "a" * 64},
        **{"bucket": "ours", "sha256": "0" * 64, "how": "copyTo", "to": "ours", "new_name": "copy"},
        **{
            "model_id": "classifier",
            "model": "classifier",
            "number": 1,
            "pipeline_id": pipeline.pk,
            "tuning_id": a_tuning_job(job).pk,
            "whole": "t/compose",
        },
        **dict.fromkeys(("token_id", "passkey_id", "view_id", "type_id", "operation"), 1),
        "ticket": "no-ticket",
    }


@pytest.fixture
def strangers(cast, browser, project):
    """Name → a browser and a script."""
    tokens = {name: token_of(getattr(cast, name), elevated=True) for name in ("charlie", "loner")}
    tokens["alice's token of elsewhere"] = token_of(cast.alice, elevated=True, project=cast.elsewhere)
    scripts = {name: Client(headers={"authorization": f"Bearer {token}"}) for name, token in tokens.items()}
    pages = {"charlie": browser("charlie"), "loner": browser("loner"), "nobody": browser()}
    return pages, {**scripts, "nobody": Client()}


def differing(visitor, real, other, names):
    """How the two addresses differ for this visitor, way by way."""
    is_page = not real.startswith(("/api/", "/v1/"))
    for way in WAYS[:2] if is_page else WAYS:
        given = {} if is_page or way == "get" else {"content_type": "application/json"}
        seen = [(getattr(visitor, way)(address, **given), address) for address in (real, other)]
        one, two = (_same(answer, address, names) for answer, address in seen)
        if one != two:
            at = next((at for at in range(len(one[1])) if one[1][at : at + 1] != two[1][at : at + 1]), 0)
            yield (
                way,
                real,
                one[0],
                two[0],
                one[1][max(at - 60, 0) : at + 60],
                two[1][max(at - 60, 0) : at + 60],
            )


def _same(answer, address, names):
    """The answer without what stands in every answer anew, or repeats what was asked for."""
    body = CHANGING.sub(b"", answer.getvalue()).replace(address.encode(), b"ADDRESS")
    for name in names:
        body = body.replace(str(name).encode(), b"ASKED")
    return answer.status_code, body


@pytest.mark.parametrize("of", sorted(OF_PROJECT))
def test_a_stranger_cannot_tell_what_is_there(strangers, there, of):
    missing = {**there, of: OF_PROJECT[of]}
    names = [name for name in (there[of], missing[of]) if len(str(name)) > 3]
    known = [*zip(addresses.pages(there).values(), addresses.pages(missing).values(), strict=True)]
    scripts = [*zip(addresses.rest(there), addresses.rest(missing), strict=True)]
    wrong = [
        (name, *how)
        for visitors, pairs in zip(strangers, (known, scripts), strict=True)
        for name, visitor in visitors.items()
        for real, other in pairs
        if real != other
        for how in differing(visitor, real, other, names)
    ]
    assert wrong == [], "\n".join(map(str, wrong))


def test_a_member_can_tell(browser, there):
    """The comparison sees a difference where there is one."""
    names = [there["job_id"], OF_PROJECT["job_id"]]
    known = zip(
        addresses.pages(there).values(), addresses.pages({**there, "job_id": 1}).values(), strict=True
    )
    vera = browser("vera")
    told = {how[1] for real, other in known if real != other for how in differing(vera, real, other, names)}
    assert f"/jobs/{there['job_id']}/" in told and f"/jobs/{there['job_id']}/spec" in told
