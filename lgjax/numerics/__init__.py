"""Small numerical tools that know nothing of mechanics: small matrices, series near zero, loops, Newton's method.

Read first: `checks.py`, the checks of users' numbers, then `small_matrix.py`.
"""
