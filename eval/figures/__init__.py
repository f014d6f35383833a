"""The papers' figures, made again: each module computes one paper's, `python -m` writes them."""
