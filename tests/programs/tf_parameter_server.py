#!/usr/bin/python3
"""ParameterServerStrategy: the chief coordinates, workers and parameter servers serve until they are stopped."""

from __future__ import annotations

import tensorflow as tf

STEPS = 8


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )
        print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step():
        return total.assign_add(1.0)

    for _ in range(STEPS):
        coordinator.schedule(step)
    coordinator.join()
    print(f"total {total.numpy():g} on {total.device}", flush=True)


if __name__ == "__main__":
    main()
