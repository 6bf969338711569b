"""Worker processes: whole runs of a loader's steps, read into memory that is shared.

They are for `map` functions that hold the GIL. The way of a batch: `WorkerPool.begin` sends a run
of steps and the number of a slot of shared memory to a process (`process`). There (`child`) the
loader reads, lays the batches into the slot, and answers at which offset each array lies. Here they
are copied from the slot, which is used again. No array is pickled or sent through a pipe.

============  =================================================================
`sent`        what a process is sent, in shared memory: a loader's description, functions beside it
`child`       what runs in the process
`process`     one process, seen from here: tasks, answers, its death
`pool`        several of them: who gets the next run; what becomes of them at exit and at a fork
============  =================================================================

Why no ready-made pool (each tried, loky 3.7 and the standard library of Python 3.11):

- When a worker dies, `concurrent.futures` and loky fail all futures alike (``BrokenProcessPool``):
  none says which step it was, and what the others had begun is lost. A task has no time limit.
- When the process is killed, a worker of loky that is busy in C code lives on (for ever, if it
  hangs), and so does its resource tracker.
- Their queues are named semaphores: eight are left in ``/dev/shm`` when all is killed at once.
- `concurrent.futures` with "spawn" runs the user's script again in each worker, and so needs the
  ``__main__`` guard; with "fork" it copies TensorFlow's locks without its threads.
- Neither hands a descriptor to a worker, so shared memory would need names, and could be left.
"""
