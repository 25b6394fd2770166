"""Rows about hosts: address, keys, status, hardware, lease and history. They hold data and no behaviour."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField, SentenceRowsField
from agents.infra.texts import said


class Location(models.Model):
    """A named group of hosts (Vertex's region)."""

    name = models.SlugField(max_length=63, unique=True)
    title = models.CharField(max_length=100, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Keypair(models.Model):
    """The deployment's own SSH key pair. The private key is stored encrypted; in the clear it is in memory only."""

    created_at = models.DateTimeField()
    public_line = models.TextField()
    private_encrypted = models.BinaryField()


class HostStatus(models.TextChoices):
    NEW = "new", said("Waiting for its key to be accepted")
    CHECKING = "checking", said("Being checked")
    UP = "up", said("Up")
    UNREACHABLE = "unreachable", said("Unreachable")
    AUTH_FAILED = "auth_failed", said("Login refused")
    BLOCKED = "blocked", said("Host key changed")
    UNUSABLE = "unusable", said("Not usable")
    MISBEHAVING = "misbehaving", said("Misbehaves, and was disconnected")


class HostsInService(models.Manager["Host"]):
    """The hosts that were not removed."""

    def get_queryset(self) -> models.QuerySet[Host]:
        return super().get_queryset().filter(retired_at=None)


class MachinesInService(HostsInService):
    """The machines among them, without their further logins."""

    def get_queryset(self) -> models.QuerySet[Host]:
        return super().get_queryset().filter(machine=None)


class Host(models.Model):
    """A machine that is reached over SSH, by one login. A further login on the same machine is a row of its own: it has
    its own link, lease, checklist, runner and seals. GPUs, CPUs and memory belong to the row of the machine."""

    name = models.SlugField(max_length=63)
    location = models.ForeignKey(Location, on_delete=models.PROTECT, related_name="hosts")
    address = models.CharField(max_length=255)
    port = models.PositiveIntegerField(default=22)
    user = models.CharField(max_length=64)
    jump = models.CharField(max_length=1000, blank=True, help_text="ProxyJump: user@host:port,user@host:port")
    # Where replicas of other hosts reach those of this one (hosts/data_address.py).
    data_address = models.CharField(max_length=255, blank=True, default="", help_text="chosen by an admin")
    found_address = models.CharField(max_length=64, blank=True, default="", help_text="found by a check")
    machine = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="logins",
        help_text="the machine of which this is a further login; empty: this row is the machine",
    )
    created_at = models.DateTimeField()
    added_by = models.CharField(max_length=150)
    retired_at = models.DateTimeField(null=True, blank=True)

    # The pinned host key ("ssh-ed25519 AAAA..."), the key that was offered last, and the person who accepted the key.
    pinned_key = models.TextField(blank=True)
    offered_key = models.TextField(blank=True)
    offered_at = models.CharField(
        max_length=300,
        blank=True,
        help_text="empty for the host's own key, address:port for the key of a jump host",
    )
    jump_keys = models.JSONField(default=dict, help_text="the pinned keys of the jump hosts by address:port")
    key_accepted_by = models.CharField(max_length=150, blank=True)
    key_accepted_at = models.DateTimeField(null=True, blank=True)

    status = models.CharField(max_length=16, choices=HostStatus.choices, default=HostStatus.NEW)
    status_since = models.DateTimeField()
    last_error = SentenceField(blank=True, help_text="the last SSH error, unchanged")
    seen_at = models.DateTimeField(null=True, blank=True)

    pid_namespaces = models.BooleanField(
        default=False, help_text="each new run gets a PID namespace of its own"
    )

    # What the probe and the runner's `hello` reported.
    checklist = SentenceRowsField(default=list, help_text="[{name, ok: true|false|null, text, fix}]")
    facts = models.JSONField(default=dict)
    cpus = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    free_disk_mb = models.BigIntegerField(null=True, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    clock_offset_s = models.FloatField(null=True, blank=True)
    # Trainyard's time minus the host's monotonic clock, and when that was measured: how long its runs have run.
    monotonic_offset_s = models.FloatField(null=True, blank=True)
    monotonic_at = models.DateTimeField(null=True, blank=True)
    runner_sha = models.CharField(max_length=64, blank=True)

    # The lease of the dispatcher that holds the link. Every write of a dispatcher is conditional on the token.
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_token = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, help_text="when the next check is due")
    closed_until = models.DateTimeField(
        null=True, blank=True, help_text="it misbehaved, and is not dialled before (misbehaviour.py)"
    )
    closed_times = models.PositiveIntegerField(
        default=0, db_default=0, help_text="how often in a row it misbehaved"
    )
    mark = models.BigIntegerField(
        default=0, help_text="grows while a dispatcher holds a link, and is sent to the host: see recovery.py"
    )

    objects = HostsInService()
    machines = MachinesInService()
    every = models.Manager["Host"]()

    class Meta:
        ordering = ["name"]
        default_manager_name = "every"
        base_manager_name = "every"
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(retired_at=None, machine=None), name="host_name_in_service_once"
            ),
            models.UniqueConstraint(
                fields=["machine", "user"],
                condition=Q(retired_at=None, machine__isnull=False),
                name="login_of_machine_once",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class GpuState(models.TextChoices):
    OK = "ok", said("Free of foreign processes")
    QUARANTINED = "quarantined", said("Quarantined")
    CLEANING = "cleaning", said("Being verified")


class Gpu(models.Model):
    """One device of a host, identified by its UUID. It is used only while its state is `ok` (gpu_quarantine.py)."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=80)
    index = models.PositiveIntegerField()
    model = models.CharField(max_length=100)
    memory_mb = models.PositiveIntegerField()
    accelerator_type = models.CharField(max_length=63, help_text="Vertex's name, if it has one")
    present = models.BooleanField(default=True)

    # Whether the GPU is in quarantine, and the processes on it as the host last reported them: `holders` is a list of
    # {pid, ticks, user, since, name, how}.
    state = models.CharField(max_length=16, choices=GpuState.choices, default=GpuState.OK)
    state_since = models.DateTimeField(null=True, blank=True)
    state_text = SentenceField(blank=True)
    holders = models.JSONField(default=list, blank=True)
    # The processes that the host is to kill, [[pid, ticks]], and the admin who asked for it. Empty after the answer.
    evict = models.JSONField(default=list, blank=True)
    evict_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["host", "index"]
        constraints = [models.UniqueConstraint(fields=["uuid"], name="gpu_uuid_once")]
        indexes = [models.Index(fields=["host"], name="gpu_out_of_use", condition=~Q(state="ok"))]

    def __str__(self) -> str:
        return self.uuid


# A host reports its load every 30 s. An older report says nothing about now.
LOAD_IS_FRESH = timedelta(seconds=100)


class HostLoad(models.Model):
    """How busy a host was when it last reported that. Written over and over: one row for each machine."""

    host = models.OneToOneField(Host, on_delete=models.CASCADE, primary_key=True, related_name="load")
    at = models.DateTimeField(help_text="by our clock")
    gpus = models.JSONField(default=dict, help_text="{uuid: [percent, MiB, W, °C]}")
    cpu = models.FloatField(null=True, help_text="cores in use")
    memory_mb = models.PositiveIntegerField(null=True, help_text="in use, of the whole host")
    net_rx = models.BigIntegerField(null=True, help_text="bytes per second, as are the next three")
    net_tx = models.BigIntegerField(null=True)
    io_read = models.BigIntegerField(null=True)
    io_write = models.BigIntegerField(null=True)


class HostKept(models.Model):
    """What a login keeps for the runs to come, as its runner told last (agents/hosts/kept.py)."""

    host = models.OneToOneField(Host, on_delete=models.CASCADE, primary_key=True, related_name="kept")
    at = models.DateTimeField(help_text="by our clock")
    entries = models.JSONField(default=list, help_text="[[kind, key, bytes, since, used, in use]]")
    left_out = models.PositiveIntegerField(default=0, help_text="how many more there are")


class Discard(models.Model):
    """Something that a host keeps and is to remove, because an admin says so. Deleted when the host has answered."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="discards")
    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=64)
    title = SentenceField(help_text="what it is, for people")
    asked_at = models.DateTimeField()
    asked_by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "kind", "key"], name="discard_once")]


class HostEvent(models.Model):
    """A line of a host's history: added, key accepted, key changed, unreachable, up again, removed."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=32)
    text = SentenceField()
    actor = models.CharField(max_length=150)
    limited = models.BooleanField(default=True, help_text="counts towards the limit of lines in a minute")

    class Meta:
        ordering = ["-at", "-id"]


class Recovery(models.Model):
    """A period of recovery mode, after the restore of a backup: nothing is done until a person confirms."""

    since = models.DateTimeField()
    why = SentenceField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    confirmed_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-id"]


class Dispatcher(models.Model):
    """A dispatcher that runs. The running dispatchers share the leases."""

    name = models.CharField(max_length=100, unique=True)
    seen_at = models.DateTimeField()
    stuck_s = models.FloatField(
        default=0, db_default=0, help_text="how long its slowest worker thread is at one piece of work"
    )
    threads_gone = models.PositiveIntegerField(
        default=0, db_default=0, help_text="how many of its worker threads have died"
    )


class MachineClock(models.Model):
    """What a boot of a machine adds to the time since that boot, to have Trainyard's time (clock_keeper.py)."""

    machine = models.CharField(max_length=100, unique=True, help_text="the id of the boot")
    name = models.CharField(max_length=100)
    offset_s = models.FloatField(help_text="Trainyard's time minus the time since the boot")
    database_s = models.FloatField(help_text="Trainyard's time minus the database's clock")
    machine_s = models.FloatField(help_text="Trainyard's time minus the machine's clock")
    noted_at = models.DateTimeField()
    unsure_since = models.DateTimeField(help_text="since when there is no gap in Trainyard's time")


class ClockJump(models.Model):
    """A clock was set while Trainyard ran, or between two runs of it."""

    at = models.DateTimeField()
    clock = models.CharField(max_length=150)
    seconds = models.FloatField()

    class Meta:
        ordering = ["-at", "-id"]
