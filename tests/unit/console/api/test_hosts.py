"""Hosts and machine types in the REST API."""

from __future__ import annotations

import json

import pytest

from agents.models import Host, HostEvent
from jobs.models import AuditEntry, HostMaintenance, MachineType
from tests.unit.console.views.example_rows import TWO_NETWORKS, a_host, a_machine_type

JSON = "application/json"
LAB = {"cpus": 8, "memoryMb": 32768, "acceleratorType": "NVIDIA_L4", "acceleratorCount": 2}


def test_a_host_is_cordoned_and_uncordoned_by_its_name_or_number(script):
    host, root = a_host("gpu-03", gpus=2), script("root")
    body = json.dumps({"message": "new disk"})
    answer = root.post("/api/v1/hosts/gpu-03:cordon", body, content_type=JSON)
    assert answer.status_code == 200 and answer.json()["cordoned"]
    seen = script("vera").get(f"/api/v1/hosts/{host.pk}").json()
    assert (seen["message"], seen["cordonedBy"], len(seen["gpus"])) == ("new disk", "root", 2)
    assert [each["name"] for each in script("vera").get("/api/v1/hosts").json()["hosts"]] == ["gpu-03"]
    assert not root.post(f"/api/v1/hosts/{host.pk}:uncordon", "{}", content_type=JSON).json()["cordoned"]


def test_a_host_gets_pid_namespaces_if_it_can_have_them(script):
    a_host("gpu-03")
    root, body = script("root"), json.dumps({"pidNamespaces": True})
    refused = root.post("/api/v1/hosts/gpu-03:contain", body, content_type=JSON)
    assert refused.status_code == 400 and "pid_namespaces" in refused.content.decode()
    Host.objects.update(facts={"pid_namespace": True})
    assert root.post("/api/v1/hosts/gpu-03:contain", body, content_type=JSON).json()["pidNamespaces"]
    assert not root.post("/api/v1/hosts/gpu-03:contain", "{}", content_type=JSON).json()["pidNamespaces"]


def test_an_admin_chooses_the_address_for_data(script):
    host = a_host("gpu-03", found_address="10.0.0.7", facts=TWO_NETWORKS)
    root = script("root")
    assert root.get("/api/v1/hosts/gpu-03").json()["dataAddress"] == "10.0.0.7"
    for address in ("10.9.0.7", "10.9.0.7"):
        body = json.dumps({"dataAddress": address})
        chosen = root.post("/api/v1/hosts/gpu-03:network", body, content_type=JSON).json()
        assert (chosen["dataAddress"], chosen["dataAddressChosen"]) == ("10.9.0.7", True)
    refused = root.post("/api/v1/hosts/gpu-03:network", '{"dataAddress": "10.9.0.8"}', content_type=JSON)
    assert refused.status_code == 400 and "10.0.0.7, 10.9.0.7" in refused.content.decode()
    assert script("vera").post("/api/v1/hosts/gpu-03:network", "{}", content_type=JSON).status_code == 403
    found = root.post("/api/v1/hosts/gpu-03:network", "{}", content_type=JSON).json()
    assert (found["dataAddress"], found["dataAddressChosen"]) == ("10.0.0.7", False)
    noted = AuditEntry.objects.filter(what="host.network").order_by("id")
    assert [each.after["data_address"] for each in noted] == ["10.9.0.7", ""]
    assert HostEvent.objects.filter(host=host, kind="data_address").count() == 2


@pytest.mark.parametrize(
    ("name", "status"), [("vera", 403), ("alice", 403), ("loner", 404), (None, 401)], ids=str
)
def test_only_the_deployments_admins_cordon_hosts(script, name, status):
    host = a_host("gpu-03")
    assert script(name).post("/api/v1/hosts/gpu-03:cordon").status_code == status
    assert not HostMaintenance.objects.filter(host=host).exists()


@pytest.mark.parametrize("body", ['{"message": 3}', '{"why": "x"}', "[]", '{"message": "' + "x" * 501 + '"}'])
def test_a_wrong_field_is_refused_with_its_name(script, body):
    host = a_host("gpu-03")
    answer = script("root").post("/api/v1/hosts/gpu-03:cordon", body, content_type=JSON)
    assert answer.status_code == 400 and answer.json()["error"]["status"] == "INVALID_ARGUMENT"
    assert not HostMaintenance.objects.filter(host=host).exists()


def test_machine_types_are_listed_defined_and_removed(script):
    a_host(gpus=2, cpus=16)
    root = script("root")
    made = root.put("/api/v1/machineTypes/lab-2", json.dumps(LAB), content_type=JSON)
    assert made.status_code == 200 and made.json()["allocatableMemoryMb"] < 32768
    listed = {
        each["name"]: each for each in script("vera").get("/api/v1/machineTypes").json()["machineTypes"]
    }
    assert (listed["lab-2"]["own"], listed["lab-2"]["hostsNow"]) == (True, 1)
    assert listed["a3-highgpu-8g"]["acceleratorCount"] == 8 and listed["a3-highgpu-8g"]["hosts"] == 0
    assert root.delete("/api/v1/machineTypes/lab-2").status_code == 200
    assert not MachineType.objects.exists()
    assert root.delete("/api/v1/machineTypes/lab-2").status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("n1-standard-4", LAB, "name"),
        ("lab-2", {**LAB, "cpus": "many"}, "cpus"),
        ("lab-2", {**LAB, "size": 3}, "size"),
        ("lab-2", {}, "cpus"),
    ],
)
def test_a_wrong_value_names_its_field(script, name, body, field):
    answer = script("root").put(f"/api/v1/machineTypes/{name}", json.dumps(body), content_type=JSON)
    violations = answer.json()["error"]["details"][0]["fieldViolations"]
    assert (answer.status_code, violations[0]["field"]) == (400, field)


def test_only_the_deployments_admins_define_types(script):
    a_machine_type("lab-8")
    for name, status in (("alice", 403), ("loner", 404)):
        assert (
            script(name).put("/api/v1/machineTypes/x", json.dumps(LAB), content_type=JSON).status_code
            == status
        )
        assert script(name).delete("/api/v1/machineTypes/lab-8").status_code == status
    assert MachineType.objects.get().name == "lab-8"


def test_a_host_is_drained_by_a_script(script):
    a_host("gpu-03")
    terms = {"message": "disk", "deadline": "2090-01-01T00:00:00Z", "force": True}
    answer = script("root").post("/api/v1/hosts/gpu-03:drain", json.dumps(terms), content_type=JSON)
    told = answer.json()
    assert (told["draining"], told["force"], told["drainDeadline"]) == (
        True,
        True,
        "2090-01-01T00:00:00.000000Z",
    )
    beyond = {"deadline": "9999-12-31T23:59:59-12:00"}
    for wrong in ({"deadline": "soon"}, {"deadline": "2000-01-01T00:00:00Z"}, {"force": True}, beyond):
        answer = script("root").post("/api/v1/hosts/gpu-03:drain", json.dumps(wrong), content_type=JSON)
        assert answer.status_code == 400, wrong


def test_hosts_are_listed_in_pages_and_filtered(script, django_assert_max_num_queries):
    names = [f"gpu-{number:02}" for number in range(7)]
    for name in names:
        a_host(name, gpus=1, status="up" if name != "gpu-03" else "unreachable")
    vera = script("vera")
    whole = vera.get("/api/v1/hosts").json()
    assert [host["name"] for host in whole["hosts"]] == names and "nextPageToken" not in whole
    found, token = [], ""
    with django_assert_max_num_queries(3 * 10):
        while True:
            page = vera.get(f"/api/v1/hosts?pageSize=3&pageToken={token}").json()
            found += [host["name"] for host in page["hosts"]]
            assert len(page["hosts"]) <= 3
            token = page.get("nextPageToken", "")
            if not token:
                break
    assert found == names
    filtered = vera.get("/api/v1/hosts?status=unreachable").json()["hosts"]
    assert [host["name"] for host in filtered] == ["gpu-03"]
    refused = vera.get("/api/v1/hosts?pageToken=%27%3B")
    assert refused.status_code == 400 and "nextPageToken" in refused.json()["error"]["message"]
    assert vera.get("/api/v1/hosts?pageSize=x").status_code == 400
