"""Motion of a mechanism: kinematics, inverse, forward and hybrid dynamics, mass matrix, energy, forces, partials.

Every algorithm walks the tree through `traversal/`.  Read first: `spatial.py`, then `inverse.py` and `forward.py`,
which are the recursive Newton-Euler and the articulated-body algorithm as in the book [featherstone2008].
"""
