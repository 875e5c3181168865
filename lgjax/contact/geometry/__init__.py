"""Where bodies touch: candidates of shapes, their gaps and frames on grounds and in pairs.

Read first: `detection.py`.
"""
