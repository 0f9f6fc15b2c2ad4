"""Code that calls tools, kept apart from everything else. (A stub: the map is made with the other parts.)

python     the Python engine: it starts a worker for each run
zygote     what forks the workers, a program of its own
script     one run, in a worker: the code, and its end of the bridge
"""
