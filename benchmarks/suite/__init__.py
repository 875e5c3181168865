"""Reference problems of rigid-body dynamics: error against cost and drift, this library beside other programs.

    python -m benchmarks.suite [--problems heavy_top,pendulum] [--quick] [--out docs/benchmarks/suite]

Read first: `problem.py` says what a problem and a sweep are, `rigid_bodies.py` has the first problems, `measure.py`
runs any.  References come from `reference.py`, `stiff_reference.py` and `closed_forms.py`, which share no code with
the library.  Their numbers are in `references.json`; `python -m benchmarks.suite --references` computes them again.
"""
