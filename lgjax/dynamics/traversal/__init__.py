"""Walks over a tree, shared by all recursions: bodies grouped into runs of levels, each run one `lax.scan`.

Read first: `traversal.py`, which carries out the walks; `layout.py` groups the bodies.
"""
