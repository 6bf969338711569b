"""Servers that tests and benchmarks of remote arrays read from; each starts and stops its own.

- ``ranges``: a folder over HTTP with byte ranges, in a thread of this process, counted.
- ``faults``: a proxy before any of the servers that breaks answers by a plan.
- ``s3``: a bucket in moto.
- ``nginx``: a folder over HTTP at the speed of the machine.
- ``link``: a network of its own with a delay and a rate, for what runs inside.
"""
