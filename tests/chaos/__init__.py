"""Chaos on real processes: what is killed, cut off and filled up, and the account of it.

``python -m tests.chaos --help`` says how to run it. Producers and workers are processes of their
own, and each notes what it does in a ledger before and after it does it. Nobody asks the queue
what happened: at the end the ledgers and the store must agree, and all calls together must be a
history that can be. Every fault of a tier's plan must have happened; what the machine does not let
anybody do is told.
"""
