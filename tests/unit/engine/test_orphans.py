import os
import signal
import subprocess
import sys
import time

CHILD = "import time; from autorecipe.engine.orphans import follow_parent; follow_parent(poll_seconds=0.05); time.sleep(60)"
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_leaves_with_its_killed_parent():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    time.sleep(1)
    os.kill(child, 0)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(200):
        if not alive(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child outlived its parent")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
