"""Finds the commands and code snippets of the pages, and knows how to run each of them (tests/python/pages/test_snippets.py)."""
