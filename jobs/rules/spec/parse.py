"""Parse a CustomJob: every field is checked, and all violations are reported at once.

A field of Vertex that Trainyard does not support is refused if ignoring it would change what the training code sees
(NFS mounts, MIG slices). It is kept and shown if it has no meaning on one's own hosts (service accounts, VPC networks,
disk types). Unknown fields are refused: a misspelt field must not silently mean its default.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping

from agents.infra.texts import said
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import (
    ACCELERATORS,
    DEFAULT_TIMEOUT_S,
    MAX_LABELS,
    MAX_ORDERS_BYTES,
    MAX_POOLS,
    MAX_REPLICAS,
    MAX_TIMEOUT_S,
    RESERVATION_AFFINITIES,
    STRATEGIES,
    CustomJob,
    CustomJobSpec,
    Disk,
    Machine,
    Pool,
    replica_name,
    script_command,
    to_document,
)
from jobs.rules.spec.json_fields import Complaints, InvalidDocument, MessageReader, Violation, duration
from jobs.rules.spec.machine_types import NO_TYPES, Types, UnknownMachine, needs
from jobs.rules.spec.parse_task import read_extensions, read_task
from jobs.rules.spec.secret_variables import AskedSecret
from jobs.rules.spec.tasks import Code, Container, Git, PythonPackage

__all__ = [
    "Code",
    "Container",
    "CustomJob",
    "CustomJobSpec",
    "Disk",
    "Git",
    "Machine",
    "Pool",
    "PythonPackage",
    "InvalidDocument",
    "Violation",
    "parse_custom_job",
    "parse_spec",
    "replica_name",
    "script_command",
    "to_document",
]

# GPUs that Google does not rent (a GeForce RTX 4090) are requested by the name that their host reports.
OWN_ACCELERATOR = re.compile(r"(NVIDIA|AMD|INTEL)_[A-Z0-9_]{1,56}", re.ASCII)
_DIRECTORY = re.compile(r"(?:/|[a-z][a-z0-9+.-]*://[^/]).*", re.ASCII | re.DOTALL)
_OUTPUT_ONLY = (
    "name",
    "state",
    "create_time",
    "start_time",
    "end_time",
    "update_time",
    "error",
    "web_access_uris",
    "satisfies_pzs",
    "satisfies_pzi",
)
# Strings that mean nothing on one's own hosts: kept and shown, without effect.
_KEPT = (
    "service_account",
    "network",
    "tensorboard",
    "experiment",
    "experiment_run",
    "protected_artifact_location_id",
)


def parse_custom_job(document: object, types: Types = NO_TYPES, gpus_here: Collection[str] = ()) -> CustomJob:
    """The job that a CustomJob document describes. Raises `InvalidDocument` with all violations, and nothing else.

    `types`: the machine types that admins have defined for its location. `gpus_here`: the types of GPUs there.
    """
    complaints = Complaints()
    fields = MessageReader(document, "", complaints)
    fields.ignore(*_OUTPUT_ONLY)
    display_name = fields.text("display_name", maximum=128)
    if not display_name.strip() and not fields.complained("display_name"):
        fields.complain("display_name", said("is required."))
    labels = read_labels(fields)
    fields.unsupported("encryption_spec", said("customer-managed keys are not supported."))
    asked_secrets: list[AskedSecret] = []
    job_spec = _job_spec(fields.message("job_spec"), types, gpus_here, asked_secrets)
    _check_directory(job_spec.base_output_directory, complaints)
    _check_shared_memory(job_spec, types, complaints)
    reduction.check(job_spec.pools, complaints)
    fields.close()
    complaints.raise_if_any()
    return CustomJob(
        display_name=display_name, labels=labels, job_spec=job_spec, asked_secrets=tuple(asked_secrets)
    )


def parse_spec(document: object, types: Types = NO_TYPES) -> CustomJobSpec:
    """The same for a CustomJobSpec alone, in the form that is kept with a job."""
    complaints = Complaints()
    job_spec = _job_spec(MessageReader(document, "job_spec", complaints), types, (), [])
    complaints.raise_if_any()
    return job_spec


def _job_spec(
    fields: MessageReader, types: Types, gpus_here: Collection[str], asked_secrets: list[AskedSecret]
) -> CustomJobSpec:
    fields.unsupported(
        "persistent_resource_id", said("persistent resources are not supported; leave it out.")
    )
    fields.unsupported(
        "psc_interface_config", said("Private Service Connect is not supported; leave it out.")
    )
    fields.unsupported("reserved_ip_ranges", said("reserved IP ranges are not supported; leave it out."))
    fields.unsupported("models", said("models are not supported; leave it out."))
    pools = _pools(fields, types, gpus_here, asked_secrets)
    scheduling = fields.message("scheduling")
    spec = CustomJobSpec(
        pools=pools,
        timeout_s=_timeout(scheduling),
        disable_retries=scheduling.switch("disable_retries"),
        restart_job_on_worker_restart=scheduling.switch("restart_job_on_worker_restart"),
        strategy=_unless_unspecified(scheduling.choice("strategy", STRATEGIES), STRATEGIES),
        max_wait_duration_s=_max_wait(scheduling),
        enable_web_access=fields.switch("enable_web_access"),
        enable_dashboard_access=fields.switch("enable_dashboard_access"),
        base_output_directory=_output_directory(fields),
        kept=tuple((name, text) for name in _KEPT if (text := fields.text(name))),
    )
    scheduling.close()
    fields.close()
    return spec


def _timeout(scheduling: MessageReader) -> float:
    timeout_s = scheduling.seconds("timeout")
    if timeout_s is None:
        return DEFAULT_TIMEOUT_S
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        scheduling.complain(
            "timeout",
            said("must be more than 0s and at most {longest} (ten years).", longest=duration(MAX_TIMEOUT_S)),
        )
    return timeout_s


def _max_wait(scheduling: MessageReader) -> float | None:
    wait_s = scheduling.seconds("max_wait_duration")
    if wait_s is not None and not 0 <= wait_s <= MAX_TIMEOUT_S:
        scheduling.complain(
            "max_wait_duration",
            said("must be from 0s (for ever) to {longest}.", longest=duration(MAX_TIMEOUT_S)),
        )
    return wait_s


def _output_directory(fields: MessageReader) -> str:
    directory = fields.message("base_output_directory")
    prefix = directory.text("output_uri_prefix")
    directory.close()
    return prefix


def _check_directory(prefix: str, complaints: Complaints) -> None:
    """Only for a new job: a spec that was accepted before this check stays valid."""
    field = "job_spec.base_output_directory.output_uri_prefix"
    if prefix and not _DIRECTORY.fullmatch(prefix) and not complaints.about(field):
        complaints.add(
            field,
            said(
                "must be an absolute path on the hosts (/shared/runs/7) or an address (gs://bucket/runs/7): "
                "where a relative path leads would depend on the host."
            ),
        )


def _check_shared_memory(spec: CustomJobSpec, types: Types, complaints: Complaints) -> None:
    """Only for a new job, too. What is in /dev/shm counts as memory that the replica uses."""
    for number, pool in enumerate(spec.pools):
        if pool is None or not pool.shm_mb:
            continue
        try:
            most = needs(pool.machine, types).memory_mb
        except UnknownMachine:
            continue
        if most and pool.shm_mb > most:
            complaints.add(
                f"job_spec.worker_pool_specs[{number}].trainyard.shm_mb",
                said(
                    "must be at most {most}: the MB of memory that {machine} has for a replica.",
                    most=most,
                    machine=pool.machine.machine_type,
                ),
            )


def read_labels(fields: MessageReader) -> dict[str, str]:
    labels: dict[str, str] = {}
    for key, value in fields.pairs("labels", maximum=MAX_LABELS).items():
        if not key or not is_label(key):
            fields.complain("labels", said("a key must be 1 to 64 lowercase letters, digits, _ or -."))
        elif value is None or not isinstance(value, str) or not is_label(value):
            fields.complain(f"labels.{key}", said("must be at most 64 lowercase letters, digits, _ or -."))
        else:
            labels[key] = value
    return labels


def is_label(text: str) -> bool:
    return len(text) <= 64 and all(
        char in "_-" or (unicodedata.category(char)[0] in "LMN" and char == char.lower()) for char in text
    )


def _pools(
    fields: MessageReader, types: Types, gpus_here: Collection[str], asked_secrets: list[AskedSecret]
) -> tuple[Pool | None, ...]:
    name = "worker_pool_specs"
    messages = fields.messages(name, maximum=MAX_POOLS)
    if not messages and not fields.complained(name):
        fields.complain(
            name, said("is required: 1 to 4 pools. The first is the pool of the primary replica.")
        )
        return ()
    pools = tuple(
        None if message.empty else _pool(message, number, types, gpus_here, asked_secrets)
        for number, message in enumerate(messages)
    )
    if messages and messages[0].empty:
        fields.complain(f"{name}[0]", said("is the pool of the primary replica and must not be empty."))
    if sum(pool.replica_count for pool in pools if pool is not None) > MAX_REPLICAS:
        fields.complain(name, said("asks for more than {number} replicas together.", number=MAX_REPLICAS))
    orders = sum(pool.replica_count * pool.task.strings_bytes for pool in pools if pool is not None)
    if orders > MAX_ORDERS_BYTES:
        fields.complain(
            name,
            said(
                "command, args and env of all replicas have {size} bytes; at most {most}. Put what is "
                "large into a file on the hosts.",
                size=orders,
                most=MAX_ORDERS_BYTES,
            ),
        )
    return pools


def _pool(
    fields: MessageReader,
    number: int,
    types: Types,
    gpus_here: Collection[str],
    asked_secrets: list[AskedSecret],
) -> Pool:
    for mounts in ("nfs_mounts", "lustre_mounts"):
        fields.unsupported(
            mounts,
            said(
                "is not supported: mount the file system on the hosts. A program of the host uses its path; for "
                "containers an admin names its directory as storage of the location, and they use /gcs/BUCKET."
            ),
        )
    count = fields.whole("replica_count", default=1, minimum=1, maximum=MAX_REPLICAS)
    if number == 0 and count != 1:
        fields.complain("replica_count", said("must be 1 in the first pool: it holds the primary alone."))
    disk = fields.message("disk_spec")
    runtime, code, wire, shm_mb = read_extensions(fields)
    pool = Pool(
        machine=_machine(fields.message("machine_spec"), types, gpus_here),
        replica_count=count,
        task=read_task(fields, number, asked_secrets, runtime),
        disk=Disk(
            boot_disk_type=disk.text("boot_disk_type", maximum=64),
            boot_disk_size_gb=disk.whole("boot_disk_size_gb", default=0, minimum=0, maximum=2**31 - 1),
        ),
        runtime=runtime,
        code=code,
        wire=wire,
        shm_mb=shm_mb,
    )
    disk.close()
    fields.close()
    return pool


def _machine(fields: MessageReader, types: Types, gpus_here: Collection[str]) -> Machine:
    accelerator = _accelerator(fields, gpus_here)
    count = fields.whole("accelerator_count", default=0, minimum=0, maximum=64)
    if accelerator and not count and not fields.complained("accelerator_count"):
        fields.complain(
            "accelerator_count",
            said("must be at least 1 when {kind} is asked for.", kind=accelerator),
        )
    if count and not accelerator and not fields.complained("accelerator_type"):
        fields.complain("accelerator_type", said("is required when accelerator_count is given."))
    fields.unsupported("gpu_partition_size", said("GPU partitions (MIG) are not supported."))
    fields.unsupported("tpu_topology", said("TPUs are not supported."))
    affinity = fields.message("reservation_affinity")
    if affinity.choice("reservation_affinity_type", RESERVATION_AFFINITIES) == RESERVATION_AFFINITIES[3]:
        affinity.complain("reservation_affinity_type", said("reservations are not supported."))
    affinity.unsupported("key", said("reservations are not supported."))
    affinity.unsupported("values", said("reservations are not supported."))
    affinity.close()
    machine = Machine(fields.text("machine_type", maximum=64), accelerator, count)
    try:
        needs(machine, types)
    except UnknownMachine as problem:
        fields.complain("machine_type", problem.args[0])
    fields.close()
    return machine


def _accelerator(fields: MessageReader, here: Collection[str]) -> str:
    name = fields.choice("accelerator_type", ACCELERATORS, also=OWN_ACCELERATOR, here=here)
    if name.startswith("TPU_"):
        fields.complain("accelerator_type", said("TPUs are not supported."))
    return _unless_unspecified(name, ACCELERATORS)


def _unless_unspecified(name: str, names: Mapping[int, str]) -> str:
    return "" if name == names[0] else name
