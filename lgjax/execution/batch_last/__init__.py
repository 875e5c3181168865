"""Evaluation of programs with the axis of a batch behind all others.

Read first: `evaluation.py`; `loops.py` and `trailing.py` are the loops and the operations that it knows.
"""
