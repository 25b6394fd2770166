"""What a user requests, as frozen values: Vertex's CustomJob, and its canonical JSON.

`parse.py` makes these from what clients send. `to_document` writes the canonical form (camelCase, int64 as strings,
defaults left out), and `parse_custom_job(to_document(job)) == job`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jobs.rules.spec.json_fields import camel, duration
from jobs.rules.spec.secret_variables import AskedSecret
from jobs.rules.spec.tasks import Code, Task, code_document, given, task_document

DAY_S = 86_400.0
DEFAULT_TIMEOUT_S = 7 * DAY_S
MAX_TIMEOUT_S = 3_650 * DAY_S
MAX_POOLS = 4
MAX_REPLICAS = 1_000
MAX_LABELS = 64
# Each replica gets a start order of its own, and all orders of a job are written in one transaction.
MAX_ORDERS_BYTES = 64 * 1024 * 1024

STRATEGIES = {
    0: "STRATEGY_UNSPECIFIED",
    1: "ON_DEMAND",
    2: "LOW_COST",
    3: "STANDARD",
    4: "SPOT",
    6: "FLEX_START",
}
RESERVATION_AFFINITIES = {
    0: "TYPE_UNSPECIFIED",
    1: "NO_RESERVATION",
    2: "ANY_RESERVATION",
    3: "SPECIFIC_RESERVATION",
}
ACCELERATORS = {
    0: "ACCELERATOR_TYPE_UNSPECIFIED",
    1: "NVIDIA_TESLA_K80",
    2: "NVIDIA_TESLA_P100",
    3: "NVIDIA_TESLA_V100",
    4: "NVIDIA_TESLA_P4",
    5: "NVIDIA_TESLA_T4",
    6: "TPU_V2",
    7: "TPU_V3",
    8: "NVIDIA_TESLA_A100",
    9: "NVIDIA_A100_80GB",
    10: "TPU_V4_POD",
    11: "NVIDIA_L4",
    12: "TPU_V5_LITEPOD",
    13: "NVIDIA_H100_80GB",
    14: "NVIDIA_H100_MEGA_80GB",
    15: "NVIDIA_H200_141GB",
    16: "NVIDIA_B200",
    17: "NVIDIA_GB200",
    18: "NVIDIA_RTX_PRO_6000",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What one replica runs on. `machine_types.needs` says what it needs of a host."""

    machine_type: str = ""
    accelerator_type: str = ""
    accelerator_count: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """Kept and shown, without effect: the host's own disk is used."""

    boot_disk_type: str = ""
    boot_disk_size_gb: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """`runtime`: the one that the document pins, or "". `code`: files that are put into the work directory.
    `wire`: of reducers, in which numbers gradients travel, or "". `shm_mb`: of /dev/shm in containers, or 0."""

    machine: Machine
    replica_count: int
    task: Task
    disk: Disk = Disk()
    runtime: str = ""
    code: Code | None = None
    wire: str = ""
    shm_mb: int = 0


@dataclass(frozen=True, slots=True)
class CustomJobSpec:
    """The position in `pools` is the role: 0 primary, 1 workers, 2 parameter servers, 3 evaluators; None is a skipped
    pool."""

    pools: tuple[Pool | None, ...]
    timeout_s: float = DEFAULT_TIMEOUT_S
    disable_retries: bool = False
    restart_job_on_worker_restart: bool = False
    strategy: str = ""
    max_wait_duration_s: float | None = None
    enable_web_access: bool = False
    enable_dashboard_access: bool = False
    base_output_directory: str = ""
    kept: tuple[tuple[str, str], ...] = ()

    def replicas(self) -> Iterator[tuple[str, int, int, Pool]]:
        """Every replica: name, number of its pool, index in the pool, and the pool. The primary comes first."""
        for number, pool in enumerate(self.pools):
            if pool is not None:
                for index in range(pool.replica_count):
                    yield replica_name(number, index), number, index, pool

    @property
    def replica_count(self) -> int:
        return sum(pool.replica_count for pool in self.pools if pool is not None)

    @property
    def wait_limit_s(self) -> float | None:
        """How long one attempt may wait for capacity; None means without limit, which Vertex writes as 0."""
        if self.max_wait_duration_s is None:
            return DAY_S if self.strategy == "FLEX_START" else None
        return self.max_wait_duration_s or None


@dataclass(frozen=True, slots=True)
class CustomJob:
    """`asked_secrets`: the secret variables of a document that was just parsed, with the values that it gave. They are
    not part of the job."""

    display_name: str
    job_spec: CustomJobSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    asked_secrets: tuple[AskedSecret, ...] = field(default=(), compare=False, repr=False)


def replica_name(pool: int, index: int) -> str:
    return f"workerpool{pool}-{index}"


def script_command(script: str, interpreter: str) -> tuple[str, ...]:
    """The command that runs a script typed into the form: `bash` or `python3`, `-c`, the script."""
    return (interpreter, "-c", script)


def to_document(thing: CustomJob | CustomJobSpec) -> dict[str, object]:
    """The canonical JSON of a job, or of its spec alone."""
    if isinstance(thing, CustomJobSpec):
        return _spec_document(thing)
    return given(
        displayName=thing.display_name, jobSpec=_spec_document(thing.job_spec), labels=dict(thing.labels)
    )


def _spec_document(spec: CustomJobSpec) -> dict[str, object]:
    scheduling = given(
        timeout=duration(spec.timeout_s),
        disableRetries=spec.disable_retries,
        restartJobOnWorkerRestart=spec.restart_job_on_worker_restart,
        strategy=spec.strategy,
    )
    if spec.max_wait_duration_s is not None:
        scheduling["maxWaitDuration"] = duration(spec.max_wait_duration_s)
    return given(
        workerPoolSpecs=[{} if pool is None else _pool_document(pool) for pool in spec.pools],
        scheduling=scheduling,
        baseOutputDirectory=given(outputUriPrefix=spec.base_output_directory),
        enableWebAccess=spec.enable_web_access,
        enableDashboardAccess=spec.enable_dashboard_access,
        **{camel(name): text for name, text in spec.kept},
    )


def _pool_document(pool: Pool) -> dict[str, object]:
    return given(
        machineSpec=given(
            machineType=pool.machine.machine_type,
            acceleratorType=pool.machine.accelerator_type,
            acceleratorCount=pool.machine.accelerator_count,
        ),
        replicaCount=str(pool.replica_count),
        diskSpec=given(bootDiskType=pool.disk.boot_disk_type, bootDiskSizeGb=pool.disk.boot_disk_size_gb),
        **task_document(pool.task),
        trainyard=given(
            runtime=pool.runtime, code=code_document(pool.code), wire=pool.wire, shmMb=pool.shm_mb
        ),
    )
