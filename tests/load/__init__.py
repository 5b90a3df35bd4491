"""A minute of trouble: many clients at once, against a server that fails in every known way.

    python -m tests.load --seconds 60

200 tasks on asyncio, 200 on trio, then 32 threads, each for that long, share one client. One
request in five fails: refused, answered 5xx, dropped, reset, cut short, malformed or too late,
before or after the server has done what it was asked for. Some operations are given next to no
time, some tasks are cancelled.

In the end every operation is held against the server's ledger, and what the process holds (memory,
objects, descriptors, threads, tasks, temporary files, connections) against what it held before.

- `server.py` fails on purpose, in a process of its own, and keeps the ledger.
- `operations.py` is what is asked for, what a caller may be told, and whether that is so.
- `clients.py` sends, in threads and in tasks.
- `figures.py` counts what a process holds.
"""
