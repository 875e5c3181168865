"""Drivers: `rollout`, ensembles, optimization of controls.

Read first: `rollout.py`.
"""
