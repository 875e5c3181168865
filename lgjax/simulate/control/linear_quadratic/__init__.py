"""Linear-quadratic problems: Riccati's recursion over the steps, and the algebra of its small matrices.

Read first: `riccati.py`, the recursion.
"""
