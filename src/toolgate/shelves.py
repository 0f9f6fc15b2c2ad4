"""Lists that outlive the process: what servers listed, in the store, by server and by a print of its configuration.

The rule this file keeps: what is under another print is not known. Nobody waits for what is written here.
"""
