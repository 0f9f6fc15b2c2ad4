"""The sandbox: code that calls tools, run in processes that may do nothing else.

May import `upstreams` (its Supervisor starts the processes) and the rooms below it.

    python     the Python engine: it starts a worker for each run
    zygote     what forks the workers, a program of its own
    script     one run, in a worker: the code, and its end of the bridge
"""
