"""Front-ends that pass a loader's batches to a framework; each is imported only when it is used."""
