"""Small numerical tools that know nothing of mechanics.  Begin with `checks.py`, what is asked of users' numbers."""
