"""Permute ``range(size)`` by a key, each integer computed separately. A shuffle, not a cipher.

The construction is a generalised Feistel network [1]_: an integer ``x`` below ``low * high`` is
the pair ``(x % low, x // low)``, and each round adds a hash of one half to the other, modulo that
half's base. The hash depends on the other half only, so every round is a bijection *whatever the
hash is*. ``low`` and ``high`` are close to the square root of ``size``. The few results beyond
``size`` are permuted again until they are inside ("cycle walking", the same paper).

Only integer arithmetic modulo ``2**64`` is used: results are the same on every platform and for
every version of NumPy. `tests/order/test_permutation.py` pins them.

References
----------
.. [1] J. Black and P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002,
   doi:10.1007/3-540-45760-7_9.
.. [2] G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number Generators",
   OOPSLA 2014, doi:10.1145/2660193.2660195.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints

Keys: TypeAlias = NDArray[np.uint64]

# Three temporaries of this many integers fit in the processor's second-level cache.
_STRIDE = 16384

_HALF_WORD = np.array(32, dtype=np.uint64)
_ONE = np.array(1, dtype=np.uint64)
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLY_1 = np.array(_GOLDEN, dtype=np.uint64)
_MULTIPLY_2 = np.array(0xD6E8FEB86659FD93, dtype=np.uint64)


# Two more rounds divide the remaining structure of an order by the square root of the size, so
# small domains need more of them. Fewest rounds at which chi-squared tests of 3 * 10**6 differences
# of positions (200,000 whole permutations where size < 8) see nothing: 16 to 20 for sizes up to 8,
# 12 for 16, 10 for 32 and 64, 8 for 100 to 512, 6 for 1000, 5 from 10**4 on. These are a few more.
_ROUNDS_BELOW = ((16, 32), (64, 16), (512, 12), (65536, 8))
_FEWEST_ROUNDS = 6
_MOST_ROUNDS = 32


def rounds_for(size: int) -> int:
    """Return the number of rounds for a domain: even, so each half changes equally often."""
    for limit, rounds in _ROUNDS_BELOW:
        if size < limit:
            return rounds
    return _FEWEST_ROUNDS


def epoch_key(seed: int, epoch: int, purpose: str) -> Keys:
    """Hash any seed, an epoch and a purpose into a key, shape (1,)."""
    import hashlib  # not for `import oocdata`: it loads OpenSSL

    # Decimal digits rather than fixed-width bytes: a seed has no largest value.
    text = f"{seed},{epoch},{purpose}"
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"oocdata.order").digest()
    return np.array([int.from_bytes(digest, "little")], dtype=np.uint64)


def derive_keys(key: Keys, numbers: NDArray[np.uint64]) -> Keys:
    """Return an unrelated key for each number: SplitMix64 [2]_ from one key."""
    z = numbers * _MULTIPLY_1
    z += key
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


# Odd multipliers, one per round, which derive a key for each round.
_ROUND_FACTORS = [
    np.array(factor, dtype=np.uint64)
    for factor in derive_keys(
        np.array([_GOLDEN], dtype=np.uint64), np.arange(_MOST_ROUNDS, dtype=np.uint64)
    )
    | np.uint64(1)
]


def forward(
    values: NDArray[np.uint64], size: int | NDArray[np.uint64], keys: Keys, runs: Ints | None = None
) -> NDArray[np.uint64]:
    """Permute integers below ``size``, from 1 to 2**62 (not checked); return a new array.

    `size` and `keys` have one element for all values or one for each; or, with `runs`, one for each
    run of that many consecutive values.
    """
    sizes = np.atleast_1d(np.asarray(size, dtype=np.uint64))
    if runs is not None and sizes.size and (sizes == sizes[0]).all():
        sizes, keys, runs = sizes[:1], np.repeat(keys, runs), None
    domains = np.stack(np.broadcast_arrays(sizes, *_bases(sizes)))
    if runs is None:
        return _permute(values, domains, keys, rounds_for(int(sizes[0])))
    result = np.empty_like(values)
    rounds_of = np.array([rounds_for(one) for one in sizes.tolist()])
    for rounds in np.unique(rounds_of).tolist():
        matching = rounds_of == rounds
        part: Any = slice(None) if matching.all() else np.flatnonzero(np.repeat(matching, runs))
        lengths = runs[matching]
        domain_of = np.repeat(domains[:, matching], lengths, axis=1)
        keys_of = np.repeat(keys[matching], lengths)
        result[part] = _permute(values[part], domain_of, keys_of, rounds)
    return result


def _permute(
    values: NDArray[np.uint64], domains: NDArray[np.uint64], keys: Keys, rounds: int
) -> NDArray[np.uint64]:
    """Permute integers below ``domains[0]``, one domain for all values or one for each."""
    if values.size > _STRIDE:
        parts = [slice(start, start + _STRIDE) for start in range(0, values.size, _STRIDE)]
        permuted = [
            _permute(values[part], _part(domains, part), _part(keys, part), rounds)
            for part in parts
        ]
        return np.concatenate(permuted)
    result = _network(values, domains, keys, rounds)
    outside = np.flatnonzero(result >= domains[0])
    while outside.size:
        domain_of = _part(domains, outside)
        again = _network(result[outside], domain_of, _part(keys, outside), rounds)
        result[outside] = again
        outside = outside[again >= domain_of[0]]
    return result


def _part(numbers: NDArray[np.uint64], part: slice | Ints) -> NDArray[np.uint64]:
    """Return the elements of `numbers` that belong to a part of the values."""
    return numbers if numbers.shape[-1] == 1 else numbers[..., part]


def _bases(sizes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return bases of the two halves, with ``low * high - low < size <= low * high``."""
    # The double square root is off by one at most for sizes up to 2**62.
    low = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    low -= (low - _ONE) * (low - _ONE) >= sizes
    low += low * low < sizes
    # With two odd bases every round would be an even permutation, and so would every result.
    low += low & _ONE
    return low, (sizes + low - _ONE) // low


def _network(
    values: NDArray[np.uint64], domains: NDArray[np.uint64], keys: Keys, rounds: int
) -> NDArray[np.uint64]:
    """Permute integers below ``low * high`` by the rounds of the network."""
    low_base, high_base = domains[1:]
    high: NDArray[np.uint64] = values // low_base
    low = values - high * low_base
    hashed = np.empty_like(low)
    shifted = np.empty_like(low)
    for number in range(rounds):
        # The high half first: neighbours differ in the low half, so they separate at once.
        source, target, base = (high, low, low_base) if number % 2 else (low, high, high_base)
        # The finaliser of a 64-bit hash; the sum brings in the key, the last two lines scale the
        # upper 32 bits to the base.
        np.add(source, keys * _ROUND_FACTORS[number], out=hashed)
        np.multiply(hashed, _MULTIPLY_1, out=hashed)
        np.right_shift(hashed, _HALF_WORD, out=shifted)
        np.bitwise_xor(hashed, shifted, out=hashed)
        np.multiply(hashed, _MULTIPLY_2, out=hashed)
        np.right_shift(hashed, _HALF_WORD, out=hashed)
        np.multiply(hashed, base, out=hashed)
        np.right_shift(hashed, _HALF_WORD, out=hashed)
        # Modulo the base: of the sum and the sum less the base, the one that did not wrap.
        np.add(target, hashed, out=target)
        np.subtract(target, base, out=hashed)
        np.minimum(target, hashed, out=target)
    high *= low_base
    high += low
    return high
