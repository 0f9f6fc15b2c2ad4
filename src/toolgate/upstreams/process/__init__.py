"""The programs that the gateway starts.

supervisor   starts, watches and ends them; each has an owner task
lockers      ends those that keep the gateway's store from being written
guard        the process that outlives the gateway for as long as it takes to end what is left of them
boxes        how programs of servers start, and their boxes, from what the configuration says to what is put on
programs     which files a program needs to be there
grants       which places of its rules a server could have led elsewhere
folders      where a program starts that takes code from the folder that it starts in
shims        what managers of versions have put in place of a program
packages     `npx` and `uvx` in two steps: fetched outside the box, started inside
kept         files of packages that were compared with a hash, and start in place of what a registry has by then
confinement  what a program may do, as data: a `Box`; what this machine has to put one on with
seccomp      which system calls a box's profile allows, as filters for the kernel
locks        puts a box on the process that calls; loaded by its path, by the guard and by the zygote of `sandbox`
"""
