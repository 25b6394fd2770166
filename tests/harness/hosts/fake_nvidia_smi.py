#!/usr/bin/python3
"""A fake nvidia-smi, with the queries that Trainyard uses. Its state: $FAKE_GPUS or /etc/fake-gpus.json.

{"count": 8, "host": "gpu00", "name": "...", "memory_mb": 81559, "util": 0 (or a list), "apps": [{"gpu", "pid",
 "memory_mb"}], "fail": null | "driver" | "hang" | "lost",
 "gone": [slots whose card is not there: those behind it move up]}
"""

from __future__ import annotations

import json
import os
import sys
import time

UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "used_memory": "MiB",
    "used_gpu_memory": "MiB",
}
UNITS.update({"utilization.gpu": "%", "utilization.memory": "%", "power.draw": "W", "power.limit": "W"})


def main(arguments):
    with open(os.environ.get("FAKE_GPUS", "/etc/fake-gpus.json")) as source:
        state = json.load(source)
    refuse_if_broken(state.get("fail"))
    options = parse(arguments)
    chosen = choose(state, options)
    if "-L" in options or "--list-gpus" in options:
        for index in chosen:
            print(f"GPU {slots(state).index(index)}: {model(state)} (UUID: {uuid(state, index)})")
    elif "--query-gpu" in options:
        table(options, [gpu_fields(state, index) for index in chosen], "--query-gpu")
    elif "--query-compute-apps" in options:
        apps = [app for app in state.get("apps", []) if app["gpu"] in chosen]
        table(options, [app_fields(state, app) for app in apps], "--query-compute-apps", APP_FIELDS)
    else:
        print("NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4")


def refuse_if_broken(how):
    if how == "hang":
        time.sleep(1e6)
    if how == "driver":
        text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
        leave(9, text + " Make sure that the latest NVIDIA driver is installed and running.\n")
    if how == "lost":
        text = "Unable to determine the device handle for GPU0000:13:00.0: Unknown Error"
        leave(15, text)


def leave(code, text):
    print(text)
    sys.exit(code)


def parse(arguments):
    options = {}
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        following = arguments[position + 1] if position + 1 < len(arguments) else ""
        options[name] = value if equals else following
    return options


def choose(state, options):
    wanted = options.get("-i") or options.get("--id")
    every = slots(state)
    if not wanted:
        return every
    chosen = [int(word) for word in wanted.split(",")]
    if any(index >= len(every) for index in chosen):
        leave(6, "No devices were found")
    return [every[index] for index in chosen]


def slots(state):
    """Where cards are. An index counts the cards, a slot does not."""
    return [slot for slot in range(state.get("count", 8)) if slot not in state.get("gone", [])]


def model(state):
    return state.get("name", "NVIDIA H100 80GB HBM3")


def uuid(state, index):
    number = 2166136261
    for byte in state.get("host", "").encode():
        number = ((number ^ byte) * 16777619) & 0xFFFFFFFF
    return f"GPU-{number:08x}-0000-4000-8000-{index:012x}"


def gpu_fields(state, index):
    total = state.get("memory_mb", 81559)
    used = 4 + sum(app.get("memory_mb", 500) for app in state.get("apps", []) if app["gpu"] == index)
    util = state.get("util", 0)
    load = util[index] if isinstance(util, list) else util
    fields = {
        "index": slots(state).index(index),
        "count": state.get("count", 8),
        "name": model(state),
        "uuid": uuid(state, index),
        "driver_version": "550.54.15",
        "pci.bus_id": "00000000:%02X:00.0" % (16 + index),
        "serial": 1650000000000 + index,
        "memory.total": total,
        "memory.used": used,
        "memory.free": total - used,
        "utilization.gpu": load,
        "utilization.memory": load // 2,
        "temperature.gpu": 34,
        "power.draw": "71.20",
        "power.limit": "700.00",
        "compute_mode": "Default",
        "mig.mode.current": "Disabled",
        "compute_cap": "9.0",
        "persistence_mode": "Enabled",
        "pstate": "P0",
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        "ecc.errors.uncorrected.volatile.total": 0,
    }
    fields["gpu_name"], fields["gpu_uuid"] = fields["name"], fields["uuid"]
    return fields


APP_FIELDS = [
    "pid",
    "process_name",
    "name",
    "used_memory",
    "used_gpu_memory",
    "gpu_uuid",
    "gpu_name",
    "gpu_bus_id",
]


def app_fields(state, app):
    gpu = gpu_fields(state, app["gpu"])
    memory, name = app.get("memory_mb", 500), app.get("name", "python3")
    values = [app["pid"], name, name, memory, memory, gpu["uuid"], gpu["name"], gpu["pci.bus_id"]]
    return dict(zip(APP_FIELDS, values, strict=False))


def table(options, rows, query, known=None):
    form = options.get("--format", "").split(",")
    if form[0] != "csv":
        leave(2, '"--format" must be specified')
    wanted = [word.strip() for word in options[query].split(",")]
    for field in wanted:
        if field not in (known or gpu_fields({"count": 1}, 0)):
            leave(2, f'Field "{field}" is not a valid field to query.\n')
    plain = "nounits" in form
    if "noheader" not in form:
        print(", ".join(field + (f" [{UNITS[field]}]" if field in UNITS else "") for field in wanted))
    for row in rows:
        cells = [
            str(row[field]) + ("" if plain or field not in UNITS else " " + UNITS[field]) for field in wanted
        ]
        print(", ".join(cells))


if __name__ == "__main__":
    main(sys.argv[1:])
