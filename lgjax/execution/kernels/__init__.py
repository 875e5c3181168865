"""Programs of one system as kernels of a GPU, one system per thread.

Read first: `ptx.py`, which writes the text of a kernel; `cuda.py` launches it.
"""
