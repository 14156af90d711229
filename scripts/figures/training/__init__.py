"""Figures of drafts that are trained."""
