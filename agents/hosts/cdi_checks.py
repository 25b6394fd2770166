"""A part of the checklist's line about engines: how containers get the GPUs of a host."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agents.infra.texts import join, said

MAX_NAMED = 3
# Names by which a spec means one whole card. It may name indexes and all of them beside these.
_UUID = "GPU-"


def judge(
    named: Collection[str] | None, gpus: Sequence[str], nodes_known: bool, out: Sequence[str] = ()
) -> tuple[str, str]:
    """(text, cure) for a host on which an engine works that takes CDI specs; empty where all is well.

    `named`: what the CDI specs name; None: the runner is too old to say. `nodes_known`: containers can be given the
    device nodes of these GPUs. `out`: cards that are there and are not used, "" for one whose name is not known; the
    line about GPUs tells of them.
    """
    if named is None or not gpus:
        return "", ""
    lacking = [uuid for uuid in gpus if uuid not in named]
    gone = sorted(name for name in named if name.startswith(_UUID) and name not in {*gpus, *out})
    texts: list[str] = []
    cures: list[str] = []
    if lacking:
        texts.append(_lacking(lacking, bool(named)))
        cures.append(said("As root: {command}.", command=_COMMAND))
        cures.append(_without(nodes_known))
    if gone and "" not in out:
        texts.append(said("its CDI spec names {gpus}, which nvidia-smi does not list", gpus=_some(gone)))
        cures.append(said("Where cards were changed, write the spec again: {command}.", command=_COMMAND))
    return (join("; ", texts) if texts else ""), (join(" ", cures) if cures else "")


def judge_docker(gpus: Sequence[str], nodes_known: bool) -> tuple[str, str]:
    """The same for a Docker that takes no CDI specs, and has no hook of NVIDIA's. No spec would help it."""
    if not gpus:
        return "", ""
    cure = said(
        "For Docker, install NVIDIA's Container Toolkit, or take Docker 25 or newer with {option} in daemon.json, and "
        "a CDI spec.",
        option='"features": {"cdi": true}',
    )
    return said("docker cannot give containers GPUs by their names"), join(" ", [cure, _without(nodes_known)])


_COMMAND = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"


def _lacking(lacking: Sequence[str], has_spec: bool) -> str:
    if has_spec:
        return said("its CDI spec does not name {gpus}", gpus=_some(lacking))
    return said("no CDI spec names its GPUs")


def _without(nodes_known: bool) -> str:
    if nodes_known:
        return said(
            "Until then containers get the device nodes alone: an image must bring the driver's libraries."
        )
    return said(
        "Until then jobs with an image and GPUs are refused here: the device nodes are not known either."
    )


def _some(names: Sequence[str]) -> str:
    shown, more = list(names[:MAX_NAMED]), len(names) - MAX_NAMED
    return join(", ", [*shown, said("and {number} more", number=more)] if more > 0 else shown)
