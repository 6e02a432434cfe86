"""Far too many: lanes, requests in one lane, urgent requests before one that can wait.

``python -m tests.crowds --help``
"""
