"""Figures of traces and of what is predicted from them."""
