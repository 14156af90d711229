"""Parts of the training of heads, see heads.py."""
