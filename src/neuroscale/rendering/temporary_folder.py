"""The size of the volume at /tmp of a server with a read-only root: the same for a runtime and for its services.

KServe merges the two by the volume's name, and a service that names no size would keep the runtime's.
"""

from __future__ import annotations

TEMPORARY_GIB = 4
"""GiB, far more than vLLM's sockets, metrics and the files of its compilers take; Kubernetes ends a pod beyond it."""
