"""Ctrl-C that a callback drops is repeated, each case in a process of its own."""

import subprocess
import sys

import pytest

START = """
import gc, os, signal, time
from lgjax.cli.interrupts import repeat_lost_interrupts
from lgjax.execution.compiled import compile_ahead

class Program:
    def lower(self):
        return self

    def compile(self, compiler_options):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            pass
        time.sleep(20)

def callback(phase, info):
    if phase == "stop":
        gc.callbacks.remove(callback)
        os.kill(os.getpid(), signal.SIGINT)

def collect():
    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(20)

def caught():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        time.sleep(1)
        print("once")
        raise

repeat_lost_interrupts()
try:
    {}
except KeyboardInterrupt:
    time.sleep(1)
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("work", "said"),
    [("compile_ahead(Program())", ""), ("collect()", ""), ("caught()", "once\n")],
    ids=["while a program is compiled", "in a callback of garbage collection", "not one that was handled"],
)
def test_an_interrupt_is_repeated_if_it_got_lost(work, said):
    command = [sys.executable, "-c", START.replace("{}", work)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (found.stdout, found.stderr, found.returncode) == (f"{said}interrupted\n", "", 0)
