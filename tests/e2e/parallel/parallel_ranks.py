"""Runs training cases on forked ranks: one JSON case a line in, one JSON result a line out.

Torch and Megatron-Core are imported once; each case forks its ranks from here, which takes a second instead of ten.
"""

import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings

TIMEOUT_S = 600  # a guard against deadlock, generous for loaded machines


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore")
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not mix with replies
    import parallel_trainee as trainee
    import torch

    from autorecipe.engine import compat

    torch.set_num_threads(1)
    compat.prepare()
    trainee.import_everything()
    gc.collect()
    gc.freeze()  # each rank collects once more before it trains: what was imported is not worth searching again
    for line in sys.stdin:
        case = json.loads(line)
        replies.write(json.dumps(run_case(case, trainee)) + "\n")
        replies.flush()


def run_case(case, trainee):
    started = time.monotonic()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        children = [start_rank(case, trainee, rank, port, folder) for rank in range(case["ranks"])]
        failed = wait_for(children, started)
        result = read(f"{folder}/result")
        errors = [text for rank in range(case["ranks"]) if (text := read(f"{folder}/error{rank}"))]
    if failed or not result:
        # A rank that fails first takes its peers' connections down; the most telling error is not a connection's.
        errors.sort(key=lambda text: "Connection" in text or "gloo" in text.lower())
        return {"error": errors[0] if errors else "a rank died without a word or ran out of time"}
    return {**json.loads(result), "seconds": round(time.monotonic() - started, 2)}


def start_rank(case, trainee, rank, port, folder):
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(case["ranks"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    code = 1
    try:
        result = trainee.train(case)
        if rank == 0:
            write(f"{folder}/result", json.dumps(result))
        trainee.leave()
        code = 0
    except BaseException:
        write(f"{folder}/error{rank}", traceback.format_exc())
    finally:
        os._exit(code)


def wait_for(children, started):
    left, failed = set(children), False
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.discard(pid)
                failed = failed or status != 0
        if left and (failed or time.monotonic() - started > TIMEOUT_S):
            failed = True
            time.sleep(0.3)  # let the peers write down what they saw
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return failed
        time.sleep(0.01)
    return failed


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
