"""`python -m speclab.anchors` prints the page docs/anchors.md."""

from .page import page

print(page(), end="")
