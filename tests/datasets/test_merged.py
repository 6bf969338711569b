import numpy as np
import pytest
from test_splits import ARRAY, EACH, ROWS, rows_read

import oocdata as ooc


def test_concat():
    for make in (
        lambda v: v,
        lambda v: v.windows(2, 1),
        lambda v: v.patches(2),
        lambda v: ooc.zip(v, v),
    ):
        a, b = ooc.open(ARRAY.copy()), ooc.open(ARRAY.copy() + ROWS * EACH)
        both = ooc.concat([make(a), make(b)])
        ids = np.arange(48) // 6 % 4
        for parts in (
            both.split(0.5, 0.5, by=ids),
            *both.folds(3),
            both.split_at(20, coordinate=np.arange(48)),
            both[::-1].split(0.5, 0.5, by=ids),
            both.split(0.5, 0.5),
        ):
            one, other = (set.union(*rows_read(p)) for p in parts)
            assert not one & other
    v = ooc.open(ARRAY)
    with pytest.raises(ooc.errors.ArgumentError, match="read the same"):
        ooc.concat([v, v]).split(0.5, 0.5, by=np.arange(48))
    m = ooc.mix({a: 1, b: 1})
    with pytest.raises(ooc.errors.ArgumentError, match="`by` must be given to each member"):
        m.split(0.5, 0.5, by=ids)
    assert len(m.split(0.5, 0.5)) == 2
    assert len(v.filter(np.arange(24) % 2 == 0).split(0.5, 0.5, by=np.arange(12) // 3)[0]) == 6
    e = v.windows(2).enumerate()
    one, two = e.split(0.5, 0.5, by=np.arange(24) // 6)
    assert len(one) == len(two) == 11, (len(one), len(two))
