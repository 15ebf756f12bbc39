# SPDX-License-Identifier: MIT OR Apache-2.0
"""A sweep on Kubernetes: pip install 'evenkeel[sweep]' dask-kubernetes s3fs, and Dask's operator on the cluster.

    python kubernetes.py IMAGE scenarios/sim/pvtcp/fig13a.toml s3://bucket/fig13a

IMAGE has dask[distributed] and evenkeel in the versions of this client. Only this client needs the store.
"""

import sys

from dask_kubernetes.operator import KubeCluster
from distributed import Client

import evenkeel

if __name__ == "__main__":
    image, file, store = sys.argv[1:]
    resources = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    command = ["dask", "worker", "--nthreads", "1"]
    with KubeCluster(name="evenkeel", image=image, resources=resources, worker_command=command) as cluster:
        cluster.scale(16)
        with Client(cluster) as client:
            client.wait_for_workers(1)
            evenkeel.sweep(evenkeel.Scenario.load(file), client, store)
