"""Functions of small arrays as programs of scalars.

Read first: `graph.py`, then `interpreter.py`, `arrays.py` and `loops.py`; `program.py` ends with what kernels are
written from.
"""
