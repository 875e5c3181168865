"""Whole algorithms as one GPU kernel, a thread per system.

Read first: `vmap.py`.
"""
