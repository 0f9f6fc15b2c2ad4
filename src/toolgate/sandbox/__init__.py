"""The sandbox: code that calls tools, run by engines in processes that may do nothing else.

May import `upstreams` (whose Supervisor starts the processes) and the rooms below it.

    limits      what a run may use, as one table
    bridge      the protocol between the host and a worker: lines ↔ events, without I/O
    worker      `Worker`: the host's end of a process that can take one run
    run         `execute`: one run, its calls of tools, its clock, its end; `Host`: what it may reach (made
                by `gateway.scripts`)
    slots       `Slots`: the runs at once, of all engines
    pool        `Pool`: the runs of one engine, and workers that are ready
    javascript  the engine for JavaScript and TypeScript: Deno
    worker.js   what Deno runs: the script's realm, `servers`, `console`, timers
    python      the engine for Python: processes forked from a zygote, and locked
    zygote      what forks them, a program of its own: standard library only
    script      what runs in them: the code, `servers`, what it prints
    monty       the engine for Python where the kernel cannot lock the other: monty
    monty_script  what holds it, a program of its own: standard library and monty
    dataset     operations on whole data, described in English, as steps or as SQL; run by the Python engine
    stored      scripts that a person has approved, in the store; what a script's head says
    script_tools  the server that has them as tools
    services    all of it as one service of a running gateway

The rules of this room: code of strangers runs in a process of its own, for one run; what it writes is hostile; what it
may reach is what `Host` does for it, which is judged there as any other call.

Another engine is a function that starts a process which speaks as `bridge` says, and gives a `pool.Engine`.
"""
