"""Figures of verifiers and of trees."""
