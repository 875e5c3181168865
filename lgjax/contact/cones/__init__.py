"""Impulses by Coulomb's law with cones, for the matrix and the velocities of a step.

Read first: `law.py`, the problem; `solver.py`, which solves it. Next: `../step.py`, which sets it up.
"""
