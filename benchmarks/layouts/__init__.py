"""Public data sets as they lie: oocdata beside the loops that their makers train with."""
