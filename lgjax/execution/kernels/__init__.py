"""Programs of one system as kernels: on a GPU with one system per thread, on a CPU with a vector of systems at a time.

Read first: `programs.py`, what becomes a kernel; `translation.py`, which writes the instructions for both. Then for
CPUs `llvm.py` and `native.py`, which compiles and registers a function; for GPUs `ptx.py` and `cuda.py`, which launches
a kernel.
"""
