"""What a mechanism does: kinematics, inverse, forward and hybrid dynamics, mass matrix, energy, forces, partials.

All of it walks the tree through `traversal/`.  Read first: `spatial.py`, then `inverse.py` and `forward.py`, which
are the recursive Newton-Euler and the articulated-body algorithm as in the book.
"""
