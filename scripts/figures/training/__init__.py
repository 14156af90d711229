"""Figures of drafts and heads that are trained."""
