"""Machine types: admins of the deployment define and remove them, and jobs keep what they requested."""

from __future__ import annotations

import pytest

from agents.models import Location
from jobs.lifecycle import snapshot
from jobs.models import Job, MachineType
from jobs.rules.spec.machine_types import Needs, allocatable_mb
from tests.unit.console.views.example_rows import a_host, a_machine_type
from tests.unit.console.views.test_new_job import FORM

TYPED = {
    "name": "lab-8",
    "location": "",
    "cpus": "8",
    "memory_mb": "32768",
    "accelerator_type": "NVIDIA_L4",
    "accelerator_count": "2",
    "note": "the blue racks",
}


def test_a_defined_type_can_be_requested_and_jobs_keep_its_old_resources(browser, project):
    root, bob = browser("root"), browser("bob")
    a_host("small", gpus=1, cpus=8)
    a_host("right", gpus=2, cpus=16)
    assert root.post("/machines/", TYPED).status_code == 302
    page = bob.get("/machines/").content.decode()
    assert "lab-8" in page and "1 of 1 hosts" in page and "32 GiB" in page
    assert "fits on 1 of 1 hosts now" in bob.get("/jobs/new").content.decode()
    assert bob.post("/jobs/new", {**FORM, "pool0-machine_type": "lab-8"}).status_code == 302
    job = Job.objects.get()
    meant = Needs(8.0, allocatable_mb(32768), "NVIDIA_L4", 2)
    assert snapshot.types_of(job) == {"lab-8": meant}
    # Changed, then removed: the job means what it meant.
    root.post("/machines/", {**TYPED, "cpus": "64"})
    root.post(f"/machines/{MachineType.objects.get().pk}/remove")
    job.refresh_from_db()
    assert snapshot.spec_of(job) and snapshot.types_of(job) == {"lab-8": meant}
    again = bob.post("/jobs/new", {**FORM, "pool0-machine_type": "lab-8"})
    assert "not a machine type known here" in again.context["draft"].pools[0].errors["machine_type"][0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "n1-standard-4"}, "name"),
        ({"name": "custom-2-1024"}, "name"),
        ({"name": "Lab 8"}, "name"),
        ({"location": "nowhere"}, "location"),
        ({"cpus": "0"}, "cpus"),
        ({"memory_mb": "-1"}, "memory_mb"),
        ({"accelerator_count": "0"}, "accelerator_count"),
        ({"accelerator_type": ""}, "accelerator_type"),
        ({"accelerator_type": "blue"}, "accelerator_type"),
    ],
)
def test_an_invalid_value_is_refused_at_its_field_and_the_form_keeps_it(browser, change, field):
    answer = browser("root").post("/machines/", {**TYPED, **change})
    form = answer.context["form"]
    assert not MachineType.objects.exists() and list(form.errors) == [field]
    assert form["note"].value() == "the blue racks"


def test_a_small_fraction_of_a_cpu_is_shown_exactly(browser, project):
    a_host("one", gpus=0, cpus=1)
    a_machine_type("tiny", cpus=0.05, memory_mb=64)
    page = browser("root").get("/machines/").content.decode()
    assert page.count(">0.05</td>") == 2 and ">0.1</td>" not in page


def test_a_job_that_fits_no_host_of_the_location_is_refused_and_the_error_lists_what_exists(browser):
    a_host("has-one", gpus=1, cpus=16, memory_mb=65536)
    a_machine_type("elsewhere-big", location=Location.objects.create(name="lab-b"))
    refused = browser("bob").post("/jobs/new", {**FORM, "pool0-machine_type": "a2-highgpu-8g"})
    (words,) = refused.context["draft"].pools[0].errors["machine_type"]
    assert "a2-highgpu-8g is 8 NVIDIA_TESLA_A100 with 96 CPUs" in words
    assert "There are: 1 with 1 NVIDIA_L4 with 16 CPUs and 65536 MB." in words
    other = browser("bob").post("/jobs/new", {**FORM, "pool0-machine_type": "elsewhere-big"})
    assert "not a machine type known here" in other.context["draft"].pools[0].errors["machine_type"][0]
    assert not Job.objects.exists()


def test_a_machine_type_of_a_location_wins_over_one_of_all_locations(browser):
    place = Location.objects.get_or_create(name="default")[0]
    a_machine_type("lab", cpus=2, memory_mb=4096)
    a_machine_type("lab", cpus=4, memory_mb=4096, location=place)
    a_host(gpus=2)
    browser("bob").post("/jobs/new", {**FORM, "pool0-machine_type": "lab"})
    assert snapshot.types_of(Job.objects.get())["lab"].cpus == 4
