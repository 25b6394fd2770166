"""Advice about a valid job. It refuses and changes nothing.

Vertex accepts jobs that are likely to hang or to lose work, and its documents say so. Trainyard says it before the job
is submitted, and on its page while it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.infra.texts import join, said, said_of
from jobs.rules.list_text import list_text
from jobs.rules.spec import launchers, reduction_advice
from jobs.rules.spec.cluster_variables import SET_FOR_REPLICAS
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.json_fields import duration
from jobs.rules.spec.machine_types import NO_TYPES, Types, needs
from jobs.rules.spec.output_addresses import output_addresses
from jobs.rules.spec.without_effect import kept_fields

CHECKPOINT_EVERY_S = 4 * 3600.0
MAX_NAMED, MAX_KEPT, MAX_SHOWN = 4, 12, 100
WARNING, HINT = "warning", "hint"
# How the text about fields that are kept begins.
WITHOUT = "Kept and shown, but without effect"
# How the text for a bind mount begins.
BIND = "the directory "
_SECRET_NAME = re.compile(
    r"(^|[_.-])(TOKEN|API_?KEY|ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|KEY|PASSWORD|PASSWD|SECRET|CREDENTIALS?)$",
    re.IGNORECASE,
)
# A number, a path, the name of a variable: none of these is a secret itself.
_NO_SECRET = re.compile(r"[\d.]*|[$/~.].*|.{0,5}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Advice:
    """`kind` is WARNING where the job may hang or lose work, and HINT for what is only good to know."""

    kind: str
    text: str


def advice(
    spec: CustomJobSpec,
    storage: Mapping[str, str] | None = None,
    types: Types = NO_TYPES,
    missing: Collection[str] = (),
    apart: Collection[str] = (),
    cards: reduction_advice.Cards = reduction_advice.NO_CARDS,
    bare: Collection[str] = (),
) -> tuple[Advice, ...]:
    """All advice about this job. `storage`: for each host that the job may use, which network storage holds the base
    output directory there, or "" for a disk of the host's own; None where that is not known. `missing`: buckets that
    the project does not have. `apart`: those of which each host has files of its own. `cards`: the network cards of the
    hosts, which a job with reducers asks for. `bare`: the hosts on which its containers get GPUs without the driver."""
    return (
        *(Advice(WARNING, text) for text in launchers.separate_models(spec)),
        *_gpu_counts(spec, types),
        *_bare_gpus(bare),
        *(Advice(WARNING, text) for text in reduction_advice.warnings(spec, cards)),
        *(Advice(HINT, text) for text in reduction_advice.hints(spec, types)),
        *_evaluators(spec),
        *_one_string_commands(spec),
        *_variables_of_ours(spec),
        *_plain_secrets(spec),
        *(Advice(HINT, text) for text in launchers.restarts_alone(spec)),
        *_checkpoints(spec),
        *_storage(spec, storage),
        *_cloud_storage(spec, missing, apart),
        *without_effect(kept_fields(spec)),
    )


def _gpu_counts(spec: CustomJobSpec, types: Types) -> Iterator[Advice]:
    primary, workers = _pool(spec, 0), _pool(spec, 1)
    if primary is None or workers is None:
        return
    here, there = needs(primary.machine, types).gpus, needs(workers.machine, types).gpus
    if here != there:
        yield Advice(
            WARNING,
            said(
                "The replicas of workerpool0 and workerpool1 have {here} and {there} GPUs. Synchronous training over "
                "all workers (TensorFlow's MultiWorkerMirroredStrategy) needs the same number everywhere, and may wait "
                "for ever otherwise.",
                here=here,
                there=there,
            ),
        )


def _bare_gpus(hosts: Collection[str]) -> Iterator[Advice]:
    if hosts:
        yield Advice(
            WARNING,
            said(
                "On {hosts} a container gets its GPUs without the libraries of the driver, which images of PyTorch and "
                "others do not bring: such a program sees no GPU, and may train on the CPU without a word. Ask an "
                "admin: the checklist of the host says what to install.",
                hosts=list_text(sorted(hosts), MAX_NAMED),
            ),
        )


def _evaluators(spec: CustomJobSpec) -> Iterator[Advice]:
    pool = _pool(spec, 3)
    if pool is not None and pool.replica_count > 1:
        yield Advice(
            WARNING,
            said(
                "workerpool3 has {number} replicas: TensorFlow expects at most one evaluator.",
                number=pool.replica_count,
            ),
        )


def _one_string_commands(spec: CustomJobSpec) -> Iterator[Advice]:
    """A whole command line as one string: the host looks for a program of that name, and there is none."""
    for number, pool in enumerate(spec.pools):
        name = pool.task.argv[0] if pool is not None and pool.task.argv else ""
        if not name.split()[1:]:
            continue
        shown = name if len(name) <= MAX_SHOWN else f"{name[: MAX_SHOWN - 1]}…"
        yield Advice(
            WARNING,
            said(
                "The command of {pool} begins with the string {string}: the "
                "host looks for a program with that whole name, blanks included. Give each word as a string of its own "
                '(["torchrun", "train.py"]), or let a shell read the line (["bash", "-c", "torchrun train.py"]).',
                pool=f"workerpool{number}",
                string=json.dumps(shown, ensure_ascii=False),
            ),
        )


def _variables_of_ours(spec: CustomJobSpec) -> Iterator[Advice]:
    pools = [pool.task for pool in spec.pools if pool is not None]
    given = {name for of in pools for name in (*dict(of.env), *(each.name for each in of.secrets))}
    names = sorted(given & SET_FOR_REPLICAS)
    if not names:
        return
    texts = [
        said_of(
            len(names),
            "Trainyard sets {names} for each replica, and the value of this job would replace that in "
            "all of them: replicas may not find each other, or take each other's place.",
            "Trainyard sets {names} for each replica, and the values of this job would replace that in "
            "all of them: replicas may not find each other, or take each other's place.",
            names=list_text(names, MAX_KEPT),
        )
    ]
    if "CUDA_VISIBLE_DEVICES" in names:
        texts.append(said("The replica may then use GPUs of other jobs."))
    texts.append(said_of(len(names), "It can be left out.", "They can be left out."))
    yield Advice(WARNING, join(" ", texts))


def looks_secret(name: str, value: str) -> bool:
    """Whether a plain variable probably holds something that others should not read."""
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.fullmatch(value)


def _plain_secrets(spec: CustomJobSpec) -> Iterator[Advice]:
    pools = [pool for pool in spec.pools if pool is not None]
    names = dict.fromkeys(
        name for pool in pools for name, value in pool.task.env if looks_secret(name, value)
    )
    if names:
        yield Advice(
            WARNING,
            said(
                "{names} looks like a secret, and everybody who may see the job can read its "
                'value. Make it secret ("secret": true), or store it and refer to it '
                '("valueFrom": {{"secret": "NAME"}}).',
                names=list_text(list(names), MAX_NAMED),
            ),
        )


def _checkpoints(spec: CustomJobSpec) -> Iterator[Advice]:
    if spec.timeout_s <= CHECKPOINT_EVERY_S:
        return
    if spec.base_output_directory:
        text = said(
            "It may run for {time}: save a checkpoint in AIP_CHECKPOINT_DIR at least every 4 hours, and begin from "
            "the latest one, so that a restart or a retry loses little.",
            time=_long(spec.timeout_s),
        )
    else:
        text = said(
            "It may run for {time}: save a checkpoint where a restart finds it at least every 4 hours, and begin from "
            "the latest one, so that a restart or a retry loses little. Without an output directory "
            "AIP_CHECKPOINT_DIR is not set.",
            time=_long(spec.timeout_s),
        )
    yield Advice(HINT, text)


def _storage(spec: CustomJobSpec, storage: Mapping[str, str] | None) -> Iterator[Advice]:
    if not storage or "://" in spec.base_output_directory or not spec.base_output_directory:
        return
    held = set(storage.values())
    if (len(held) > 1 or len(storage) == 1) and any(by.startswith(BIND) for by in held):
        bound = {host: by for host, by in storage.items() if by.startswith(BIND)}
        yield Advice(
            HINT,
            said(
                "{path} is a directory that is mounted from elsewhere on {hosts}, so it "
                "is not known whether it is the same storage on all hosts. If it is not, what is saved there is "
                "not found after a retry or a move to another host.",
                path=spec.base_output_directory,
                hosts=_names(bound),
            ),
        )
    elif held == {""}:
        text = said_of(
            len(storage),
            "{path} is on the disk of {hosts}: what is saved there is found by a restart on the same host, "
            "not by a retry or a move to another host. Storage that all hosts share keeps it everywhere.",
            "{path} is on each host's own disk ({hosts}): what is saved there is found by a restart on the same host, "
            "not by a retry or a move to another host. Storage that all hosts share keeps it everywhere.",
            path=spec.base_output_directory,
            hosts=_names(storage),
        )
        yield Advice(WARNING if len(storage) > 1 else HINT, text)
    elif len(held) == 1:
        yield Advice(
            HINT,
            said(
                "{path} is on shared storage ({storage}): what is saved there is found after "
                "restarts, retries and moves to other hosts.",
                path=spec.base_output_directory,
                storage=held.pop(),
            ),
        )
    else:
        own = {host: by for host, by in storage.items() if not by}
        held = {by or said("a disk of its own on {hosts}", hosts=_names(own)) for by in held}
        yield Advice(
            WARNING,
            said(
                "{path} is not the same storage on all hosts ({storage}): "
                "what is saved there may not be found after a retry or a move to another host.",
                path=spec.base_output_directory,
                storage=join(", ", sorted(held)),
            ),
        )


def _cloud_storage(spec: CustomJobSpec, missing: Collection[str], apart: Collection[str]) -> Iterator[Advice]:
    found = output_addresses(spec)
    for address in found.named:
        if address.bucket in missing:
            yield Advice(
                WARNING,
                said(
                    "{path} is named, and the project has no bucket {bucket}: the program gets the address as it "
                    "stands, and nothing is on the hosts. Make the bucket on the page Storage, and upload to it.",
                    path=str(address),
                    bucket=address.bucket,
                ),
            )
    base = found.base
    if base is not None and base.bucket in apart and spec.replica_count > 1:
        yield Advice(
            HINT,
            said(
                "Each host has files of its own for {path}, and all of them are stored. A replica does not see what a "
                "replica on another host writes there, before it is started again.",
                path=str(base),
            ),
        )


def without_effect(kept: Sequence[tuple[str, str]]) -> Iterator[Advice]:
    """`kept`: names of fields in the document, with their values."""
    if kept:
        fields = list_text([f"{name} ({value})" for name, value in kept], MAX_KEPT)
        yield Advice(
            HINT, said("Kept and shown, but without effect on hosts of your own: {fields}.", fields=fields)
        )


def _long(seconds: float) -> str:
    """`7 days`, `12 hours`; shorter times in seconds."""
    days, hours = (f"{seconds / size:.1f}".removesuffix(".0") for size in (86400, 3600))
    if seconds >= 86400:
        return said("1 day") if days == "1" else said("{number} days", number=days)
    if seconds >= 3600:
        return said("1 hour") if hours == "1" else said("{number} hours", number=hours)
    return duration(seconds)


def _pool(spec: CustomJobSpec, number: int) -> Pool | None:
    return spec.pools[number] if number < len(spec.pools) else None


def _names(hosts: Mapping[str, str]) -> str:
    return list_text(sorted(hosts), MAX_NAMED)
