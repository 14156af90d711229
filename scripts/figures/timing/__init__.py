"""Figures of where the time of a step goes, and of the arithmetic operations behind it."""
