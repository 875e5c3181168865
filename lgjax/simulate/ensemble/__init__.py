"""Many trajectories at a time: Monte Carlo runs, their statistics, and their folders on disk.

Read first: `ensemble.py` for randomized copies of a mechanism, `monte_carlo.py` for the machinery under it.
"""

from lgjax.simulate.ensemble.ensemble import Draw, Ensemble, Spread, ensemble, load_ensemble
from lgjax.simulate.ensemble.monte_carlo import MonteCarlo, Sample, monte_carlo
from lgjax.simulate.ensemble.statistics import Statistics
from lgjax.simulate.ensemble.storage import Run, load_run

__all__ = [
    "Draw",
    "Ensemble",
    "MonteCarlo",
    "Run",
    "Sample",
    "Spread",
    "Statistics",
    "ensemble",
    "load_ensemble",
    "load_run",
    "monte_carlo",
]
