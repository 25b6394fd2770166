"""Every address in a made-up language (tests/harness/marked_language.py).

Words that no catalogue has stay plain English, and the test that meets them fails. So do words that a sentence got as a
value and that nobody translated.

What stays English: the names that the rows below have, the words of computers (NAMES), REST and the command line.
"""

from __future__ import annotations

import pytest

from tests.harness import marked_language
from tests.unit.console.views.conftest import no_host_answers
from tests.unit.console.views.rows_of_a_file import addresses, browser, stored
from tests.unit.console.views.test_page_matrix import GET, POST

__all__ = ["addresses", "browser", "no_host_answers", "stored"]

# People, projects and objects of the tests, and words that REST and command lines use.
NAMES = (
    # An example of a registry.
    r"ghcr\.io",
    # An example of images that an alias stands for.
    r"us-docker\.pkg\.dev/[\w/-]+\*",
    *(
        "root",
        "alice",
        "bob",
        "bella",
        "vera",
        "charlie",
        "loner",
        "gone",
        "yves",
        "ours",
        "lab-8",
        "template",
    ),
    *(
        "train",
        "default",
        "Default",
        "elsewhere",
        "trainyard",
        "Trainyard",
        "example",
        "slack",
        "hello",
        "ci",
    ),
    *(r"gpu-\w+", r"workerpool\d(?:-\d)?", r"[\w.]+@[\w.-]+", r"https?://\S*", r"/[\w/.-]+", r"SHA256:\S+"),
    *(r"(?:NVIDIA|TPU|AMD|HF|WANDB|TRAINYARD|TF|CLOUD_ML|AIP)\w*", r"(?:NVIDIA )?L4", r"[a-z]\d\w*-[\w-]+"),
    *(
        "GPU",
        "GPUs",
        "CPU",
        "CPUs",
        "UTC",
        "GiB",
        "MiB",
        "KiB",
        "GB",
        "MB",
        "PID",
        "JSON",
        "SDK",
        "curl",
        "gcloud",
    ),
    *(
        "SPOT",
        "REST",
        "API",
        "SSH",
        "CSV",
        "Lines",
        "CANCELED",
        # Kinds of objects, as the audit names them.
        r"^(?:host|job|project|user|template|quota|shell|artifact|bucket)(?= |$)",
        r"custom-\S+",
        r"train-\{\w+\}",
        r"\{(?:project|id)\}",
    ),
    *(r"\w+\.\w+\.\w+", r"trainyard-priority=\w+", r"team=\w+", "running jobs", r"\d+-workerpool\S+"),
    # Examples in fields: an image, a module, a branch, a directory. An engine.
    *(r"ghcr\.io/\S+", r"trainer\.task", r"^main$", r"^src$", "podman", "docker", "apptainer"),
    r"[\w+-]+(?:/[\w+-]+)+",
)
# What the rows say that is no sentence of ours: the causes and checks of example_rows.py, keys, the acts of the audit.
DATA = (
    "submitted",
    "is fine",
    "host: ",
    "ssh-ed25519",
    "(ED25519)",
    "CLUSTER_SPEC HOSTNAME",
    ".make",
    "way: ",
    # The placeholder of a bucket, addresses of objects, and the digest of what is stored.
    "vision-runs",
    "gs:",
    "2cf24dba",
    # The name of a model, of a pipeline, and of a study; its metric; an example of values.
    "digits",
    "-pipeline",
    "-study",
    "loss",
    "adam, sgd",
)


@pytest.fixture(scope="session")
def catalogues(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marked")
    marked_language.write(folder)
    return folder


@pytest.fixture(autouse=True)
def offered(settings, catalogues):
    settings.LANGUAGES = [("en", "English"), (marked_language.CODE, "Wide")]
    settings.LOCALE_PATHS = [catalogues]


def english_in(answer):
    if not answer.headers.get("Content-Type", "").startswith("text/html"):
        return []
    page = answer.content.decode()
    assert f'<html lang="{marked_language.CODE}"' in page or "<html" not in page
    found = marked_language.not_translated(page, NAMES)
    return [text for text in found if not any(data in text for data in DATA)]


@pytest.fixture
def reader(browser):
    client = browser("root")
    client.cookies["language"] = marked_language.CODE
    return client


@pytest.mark.parametrize("name", sorted(GET.keys() - {"preferences"}))
def test_a_page_has_no_word_of_english(name, addresses, reader):
    assert english_in(reader.get(addresses(name))) == []


@pytest.mark.parametrize("name", sorted(POST.keys() - {"preferences"}))
def test_what_a_form_answers_has_no_word_of_english(name, addresses, reader):
    """An empty form and one with wrong values: the errors, or the page that says what was done."""
    for typed in ({}, WRONG):
        assert english_in(reader.post(addresses(name), typed, follow=True)) == []


# A value that hardly any field takes.
WRONG = dict.fromkeys(
    (
        "name",
        "title",
        "weight",
        "user",
        "limit",
        "whose",
        "metric",
        "accelerator_type",
        "value",
        "username",
        "address",
    )
    + (
        "way",
        "events",
        "wait_hours",
        "until",
        "deadline",
        "note",
        "why",
        "key",
        "cpus",
        "memory_mb",
        "old",
        "code",
    )
    + (
        "password",
        "minutes",
        "location",
        "project",
        "login_template",
        "template",
        "data_address",
        "hosts",
        "keys",
    ),
    "~ 1\n~",
)


@pytest.mark.parametrize(
    ("address", "status"), [("/nothing", 404), ("/hosts/999/", 404), ("/jobs/?\0", 200), ("/logout", 405)]
)
def test_a_page_for_an_error_has_no_word_of_english(reader, address, status):
    answer = reader.get(address)
    assert answer.status_code == status and english_in(answer) == []


def test_a_form_of_another_site_is_refused_in_the_language(browser):
    client = browser("root", enforce_csrf_checks=True)
    client.cookies["language"] = marked_language.CODE
    answer = client.post("/projects/new")
    assert answer.status_code == 403 and english_in(answer) == []
