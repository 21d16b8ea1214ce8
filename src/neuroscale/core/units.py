"""Defines the units of memory and file sizes, in bytes.

A GiB is not a GB: vLLM, Kubernetes' `Gi` and this program count 2^30 bytes; a GB is 10^9 bytes, in which publishers
give the sizes of their files and makers the bandwidth of their accelerators.

Programs that run apart from this package (local/node/shim.py, local/webhook_relay.py) cannot import this and write the
number out.
"""

from __future__ import annotations

MIB = 2**20
GIB = 2**30
