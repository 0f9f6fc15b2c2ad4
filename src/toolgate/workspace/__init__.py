"""The workspace of coding agents (seed 004): tasks that outlive a session, and the sessions themselves.

May import `upstreams` and the rooms below it.

    services      `WorkspaceServices`: all of this room that works while a gateway runs; `internal_servers`
    workspace     `Workspace`: what the tools here work by; in whose session and project a call is
    projects      folders with a `.gobby/project.json`
    folders       work in folders that others name, whose disk may not answer
    tools         a tool of an internal server as a row: its arguments as a struct, and its function
    tasks         what a task is, read and written
    task_tools    the tools that make, show, change, close, delete and list tasks
    deleting      a task deleted with all that is below it, in pieces
    dependencies  what tasks wait for; trees and circles of them
    ready         which tasks can be worked on, and which wait
    board         the tasks of a project by what can be done with them
    links         which sessions had to do with which tasks
    sessions      records of agents' sessions, and which a call belongs to; what one hands over to the next
    hooks         what the agents' programs say of their sessions, by `call_hook` or by `toolgate hook`
    git_head      the commit that a checkout is at, and its repository
    jsonl         the lines of a project's file of tasks
    task_file     that file, opened by one process at a time and replaced as a whole
    exporting     the tasks of a project as lines
    standing      how the tasks of a project stand in the store
    comparing     lines beside the store: what an import is to do
    importing     lines taken into the store, in pieces
    syncing       that file, exported and imported by tools, and what is known of it
    following     that file, kept up to date by itself
    circles       what is above or before itself
    pace          long work in a thread: others have their turn, and it can be stopped
    codex         `Codex`: prompts, threads, and what they may do
    codex_folder  the folder that a call of Codex names, as it was when a person was asked
    codex_turn    one turn of Codex: what is kept of it, and what it asks
    codex_said    texts, ids and lists of Codex, read no further than they are kept
    codex_server  the process that runs Codex

The rules of this room: what it keeps are rows of the store's tables (`state.migrations`), read and changed by plain
functions of a connection; and a change that several rows belong to is one `transact`.

Tasks of the protocol (`eras.tasks`, work of a server that goes on behind a handle) are something else.

Another tool of an internal server is a `Tool` in its table. Another internal server is a row in
`services.internal_servers`, and its name in `core.names.INTERNAL`.
"""
