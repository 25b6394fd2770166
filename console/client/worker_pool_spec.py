"""Pools in the grammar of `gcloud ai custom-jobs create --worker-pool-spec`, and as a document of the job."""

from __future__ import annotations

from typing import Any

from .errors import NOT_UNDERSTOOD, ClientError

Document = dict[str, Any]
MACHINE = {
    "machine-type": "machineType",
    "accelerator-type": "acceleratorType",
    "accelerator-count": "acceleratorCount",
}
KEYS = frozenset(
    {
        *MACHINE,
        "replica-count",
        "container-image-uri",
        "executor-image-uri",
        "python-module",
        "local-package-path",
    }
    | {"script", "requirements", "extra-packages", "extra-dirs", "output-image-uri"}
)
# gcloud builds an image from these. Here the folder itself is shipped.
NOT_HERE = {
    "requirements": "Put a requirements.txt into the environment of the image, or use a Python package.",
    "extra-packages": "Use a Python package: executor-image-uri, python-module and --python-package-uris.",
    "extra-dirs": "Put these folders below the one that local-package-path names.",
    "output-image-uri": "No image is built: the folder is shipped as it is.",
}


def parsed(text: str) -> dict[str, str]:
    """`key=value,key=value`. As with gcloud, `^;^` at the begin makes `;` the separator."""
    separator = ","
    if text.startswith("^") and "^" in text[1:]:
        separator, _, text = text[1:].partition("^")
        if not separator:
            raise _wrong(text, "the separator between ^ and ^ is empty")
    found: dict[str, str] = {}
    for part in text.split(separator) if text else ():
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals and key:
            # A comma in a value, such as in a list of packages, goes on with the value before.
            raise _wrong(
                text,
                f"{part!r} has no =; where a value has a {separator!r}, begin with ^;^ and separate by ;",
            )
        if key in NOT_HERE:
            raise ClientError(f"--worker-pool-spec: {key} is not supported.", NOT_HERE[key], NOT_UNDERSTOOD)
        if key not in KEYS:
            raise _wrong(text, f"there is no {key!r}; known are {', '.join(sorted(KEYS - NOT_HERE.keys()))}")
        if key in found:
            raise _wrong(text, f"{key} is given twice")
        found[key] = value.strip()
    return found


def _wrong(text: str, why: str) -> ClientError:
    return ClientError(
        f"--worker-pool-spec {text!r}: {why}.",
        "Such as: --worker-pool-spec=machine-type=host,replica-count=1,container-image-uri=host",
        NOT_UNDERSTOOD,
    )


def document(
    given: dict[str, str], command: list[str], args: list[str], env: list[Document], packages: list[str]
) -> Document:
    """A pool of a CustomJob. An empty specification is a pool that has no replicas, as with gcloud."""
    if not given:
        return {}
    pool: Document = {"replicaCount": _number(given, "replica-count", "1")}
    machine: Document = {"machineType": given.get("machine-type", "host")}
    if "accelerator-type" in given:
        machine["acceleratorType"] = given["accelerator-type"].upper().replace("-", "_")
        machine["acceleratorCount"] = int(_number(given, "accelerator-count", "1"))
    elif "accelerator-count" in given:
        raise _wrong("", "accelerator-count needs an accelerator-type")
    pool["machineSpec"] = machine
    if "python-module" in given and "local-package-path" not in given:
        return {**pool, "pythonPackageSpec": _package(given, args, env, packages)}
    return {**pool, "containerSpec": _container(given, command, args, env)}


def _package(given: dict[str, str], args: list[str], env: list[Document], packages: list[str]) -> Document:
    if not packages:
        raise ClientError(
            "python-module needs packages.", "Give --python-package-uris=gs://...", NOT_UNDERSTOOD
        )
    spec = {
        "executorImageUri": given.get("executor-image-uri", "host"),
        "packageUris": packages,
        "pythonModule": given["python-module"],
    }
    return {**spec, **_if_any(args=args, env=env)}


def _container(given: dict[str, str], command: list[str], args: list[str], env: list[Document]) -> Document:
    image = given.get("container-image-uri") or given.get("executor-image-uri") or ""
    if "script" in given or "python-module" in given:
        if "local-package-path" not in given:
            raise _wrong("", "script needs a local-package-path")
        if command or ("script" in given and "python-module" in given):
            raise ClientError(
                "A script, a python-module and a command cannot be given together.",
                "Give one.",
                NOT_UNDERSTOOD,
            )
        what = [given["script"]] if "script" in given else ["-m", given["python-module"]]
        command = ["python3", *what]
    if not image:
        raise _wrong("", "container-image-uri is missing; host runs the command on the host itself")
    return {"imageUri": image, **_if_any(command=command, args=args, env=env)}


def _if_any(**lists: list[Any]) -> Document:
    return {name: found for name, found in lists.items() if found}


def _number(given: dict[str, str], key: str, default: str) -> str:
    text = given.get(key, default)
    if not text.isdigit():
        raise _wrong("", f"{key} must be a number, not {text!r}")
    return text
