"""What the training of drafts (train.py) and the training of heads (heads.py) share."""
