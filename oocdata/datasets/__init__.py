"""Floor 2: which elements. Integers in, row numbers out; composing reads nothing."""
