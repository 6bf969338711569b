"""Read whole runs of a loader's steps in worker processes, into shared memory.

Workers are for `map` functions that hold the GIL. `WorkerPool.begin` sends a run of steps and the
number of a slot of shared memory to a process (`process`). There (`child`), the loader reads the
run, copies the batches into the slot, and answers with the offset of each array. The parent copies
the arrays from the slot, which is then used again. No array is pickled or sent through a pipe.

============  =================================================================
`sharing`     share a loader with workers: its description, and pickled functions, in shared memory
`child`       what runs in the worker process
`process`     one worker, seen from the parent: tasks, answers, and detecting its death
`pool`        several workers: choose who reads the next run; clean up at exit and after a fork
============  =================================================================

Why no existing pool (each was tried, loky 3.7 and the standard library of Python 3.11):

- When a worker dies, `concurrent.futures` and loky fail all futures with ``BrokenProcessPool``:
  the step that failed is unknown, and the other workers' results are lost. Tasks have no timeout.
- When the parent is killed, a worker of loky that is busy in C code lives on (forever, if it
  hangs), and so does its resource tracker.
- Their queues are named semaphores: eight are left in ``/dev/shm`` when all processes are killed.
- `concurrent.futures` with "spawn" runs the user's script again in each worker, and so needs the
  ``__main__`` guard; with "fork", it copies TensorFlow's locks without its threads.
- Neither can pass a descriptor to a worker, so shared memory would need names, and could leak.
"""
