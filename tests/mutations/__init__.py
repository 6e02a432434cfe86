"""Mutation testing: the code is changed in one place at a time, and a test must notice."""
