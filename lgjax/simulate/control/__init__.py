"""Optimisation of controls over a rollout: shooting and iLQR.

Read first: `problem.py`, then `optimize.py`.
"""
