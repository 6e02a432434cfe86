"""A world in which everything that can go wrong does, and goes wrong the same way again.

One integer decides it all: who crashes, which message is lost, how late a timer rings. The queue,
the batching, the streams and the fetcher are the real ones. What is simulated is around them: the
event loop's time, the network, the store's machine, processes, their clocks, and chance.

``python -m tests.simulation --help``
"""
