"""The search of iLQR and FDDP. Read first: `search.py`."""
