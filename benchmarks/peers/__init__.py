"""Each of the others, in an environment of its own (`requirements/`). Imports nothing of ours."""
