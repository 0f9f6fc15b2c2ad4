"""Several processes for one port: workers take the connections, and one process owns all that has state.

role      what a process does of what there is to do for a configuration
channel   what a worker and the owner tell each other; a socket may go with it
handed    the configuration that the owner serves, as workers read it
framing   where requests and answers end, of bytes that are passed on as they are
taking    a worker's connection: it answers the calls that it can, and passes all else on to the owner
local     the gateway of a worker: which calls these are
learning  how a worker learns from what the owner has answered
owning    the owner's connections, which workers pass on
"""
