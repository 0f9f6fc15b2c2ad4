"""The programs that the gateway starts.

supervisor  starts, watches and ends them; each has an owner task
guard       the process that outlives the gateway for as long as it takes to end what is left of them
"""
