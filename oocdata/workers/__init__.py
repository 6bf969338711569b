"""Worker processes: whole reads of a loader, in other processes, through memory that is shared.

For ``map`` functions that are bound by Python. The way of a batch: `WorkerPool.begin` sends a run
of steps and a slot of shared memory to a process (`Worker`); there (`child`) the loader reads
straight into the slot, and answers where in it each array lies; here the arrays are leases of the
slot, which is used again when nothing sees them any more. No array is pickled or copied.

===============  ==============================================================================
`description`    what a process gets: the pickled loader, its arrays beside it in shared memory
`arena`          shared memory without a name, in slots
`child`          what runs in the process
`worker`         one process, seen from here: tasks, answers, its death
`lifetime`       what becomes of pools at exit and at a fork
`pool`           several of them: which gets the next run, how much memory is lent, the end
`reader`         runs for a front-end, in workers started when first asked
===============  ==============================================================================

A process never imports the user's script: what is defined there travels by value. It dies with
this one, however this one ends: the kernel sees to it where it can (`child.die_with`).
"""
