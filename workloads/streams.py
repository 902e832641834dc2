"""Independent streams of random numbers, each found by the seed and a name."""

from zlib import crc32

import numpy as np


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """The generator of that name under that seed (at least 0), the same in every process.

    What one stream is asked for does not move the others, so a change of the arrivals leaves the lengths alone.
    PCG64 is named outright because numpy may change its default generator.
    """
    keys = tuple(part if isinstance(part, int) else crc32(part.encode()) for part in name)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=keys)))
