"""The command `lgjax bench`: timing, roofline, and peers.

Read first: `command.py`.
"""
