"""Servers that tests and benchmarks of remote arrays read from; each starts and stops its own.

- ``ranges``: a folder over HTTP with byte ranges, in a thread of this process, counted.
- ``proxy``: stands before any of the servers and breaks answers by a plan of ``faults``.
- ``s3``: a bucket in moto.
- ``google``: buckets as Google Cloud Storage shows them, on top of ``ranges``.
- ``nginx``: a folder over HTTP at the speed of the machine.
- ``link``: a network of its own behind a delay and a rate, for the last two.
"""
