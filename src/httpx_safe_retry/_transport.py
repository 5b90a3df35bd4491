"""What every `RetryTransport` is made of. No HTTP library is imported: each has a transport of its
own that is made of this (`_for_httpx.py`, `httpx2.py`).
"""

from __future__ import annotations

from ._tasks import InTasks
from ._threads import InThreads


class Driver(InThreads, InTasks):
    """Sends requests of one library, again if need be, in threads and in tasks."""
