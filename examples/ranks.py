"""Train on several processes or machines: each rank reads its own part of every global batch.

Use this for data-parallel training, with any framework: the global batches are the same for every
number of ranks, and each rank decodes only its share of the chunks. Here the ranks add up the
numbers that they read, instead of gradients.

    python ranks.py ds.npy 2               # two processes on this machine
"""

import multiprocessing
import sys

import numpy as np

import oocdata as ooc


def train(path, ranks, rank):
    """Read the batches of one rank, and return the sum of each."""
    loader = ooc.open(path).batches(32, shuffle=True, seed=7).shard(ranks, rank)
    # With PyTorch: shard(torch.distributed.get_world_size(), torch.distributed.get_rank());
    # with JAX: shard(jax.process_count(), jax.process_index()); with TensorFlow: .to_tf().
    return [float(np.sum(batch, dtype="f8")) for batch in loader.epoch(0)]


if __name__ == "__main__":
    path, ranks = sys.argv[1], int(sys.argv[2])
    with multiprocessing.get_context("spawn").Pool(ranks) as pool:
        parts = pool.starmap(train, [(path, ranks, rank) for rank in range(ranks)])
    sums, expected = np.sum(parts, axis=0), train(path, 1, 0)
    print(f"{len(sums)} steps by {ranks} ranks: sums equal one rank's:", end=" ")
    print(np.allclose(sums, expected[: len(sums)]))
