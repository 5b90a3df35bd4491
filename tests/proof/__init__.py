"""The cut-point proof: the two laws of this library, attacked at every byte on the wire.

    python -m tests.proof                       every case there is
    python -m tests.proof --sample 500 --seed 1 some of them
    python -m tests.proof --client httpx        for comparison, without us

The rule: the server's ledger is the truth. Each run sends one request, breaks it at one place, lets
the server be healthy from then on, and holds what the client says against what was executed:

- a write that is not replay-safe ran at most once;
- success means that it ran, any failure but an uncertain write that it did not, and `executed` is
  never the opposite of the ledger;
- a replay-safe request gets through;
- whatever comes in whole is what was sent.

`cases` lists what is done, `server` does it, `drivers` send, `judge` compares, `__main__` counts.
"""
