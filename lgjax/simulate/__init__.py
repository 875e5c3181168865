"""Drivers: `rollout`, ensembles, optimisation of controls.

Read first: `rollout.py`.
"""
