"""Time derivatives of the dynamics to any order, as recursions of Taylor coefficients.

Read first: `derivatives.py` has the public functions, `series.py` the sweeps, `body_frame.py` the body steps.
"""
