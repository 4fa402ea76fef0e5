import os
import signal
import subprocess
import sys
import time

RANK = """
import time
from autorecipe.engine import compat, orphans
if __name__ == "__main__":
    compat.prepare()
    orphans.watch_results_queue()
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    before = filesystem_async._results_queue
    orphans.watch_results_queue()
    assert filesystem_async._results_queue is before
    before.put("written")
    assert before.get() == "written"
    print(before._manager._process.pid, flush=True)
    time.sleep(60)
"""


def test_the_results_queue_of_a_killed_rank_leaves_with_it(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
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
