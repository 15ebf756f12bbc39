# SPDX-License-Identifier: MIT OR Apache-2.0
"""A sweep on a cluster with SLURM: pip install 'evenkeel[sweep]' dask-jobqueue, where the workers find it, too.

    python slurm.py scenarios/sim/pvtcp/fig13a.toml results/fig13a
"""

import sys

from dask_jobqueue.slurm import SLURMCluster
from distributed import Client

import evenkeel

if __name__ == "__main__":
    file, store = sys.argv[1:]
    # A job is one node's; a run is one thread, and needs memory as docs/simulator.md says.
    with SLURMCluster(queue="normal", cores=16, processes=16, memory="32GB", walltime="02:00:00") as cluster:
        cluster.adapt(maximum_jobs=8)
        with Client(cluster) as client:
            # Workers come as SLURM gives them: the first of them is enough to begin.
            client.wait_for_workers(1)
            evenkeel.sweep(evenkeel.Scenario.load(file), client, store)
