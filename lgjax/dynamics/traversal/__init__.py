"""How every recursion walks a tree: bodies grouped into runs of levels, each run one `lax.scan`.

Read first: `layout.py` groups the bodies, `traversal.py` carries out the walks.
"""
