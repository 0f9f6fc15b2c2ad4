"""Provisioning: which server answers what somebody needs, and whether toolgate may install it by itself.

May import `catalog`, `search`, `workspace`, `sandbox` and the rooms below them. It needs
`search` alone of these.

    provisioning  `Provisioning`: finds entries, reports on them, has a package checked before it runs
    entries       what a list of servers says of one, of any era of the registries' API
    registries    MCP registries, read page by page and kept for a day
    lists         the entries of a list, packed
    catalogue     the list that comes with toolgate: `catalogue.toml`
    packages      what npm and PyPI say of one version: its age, its hash, whose it is
    lookups       the same for several callers at once: whose turn it is, and what is kept for a minute
    clients       npm and uv as they are installed here: where they fetch packages from
    repositories  repositories of GitHub in which servers are described
    choosing      what a person has chosen, as the server that is added
    gates         what must hold before anything is installed, as a table that is told

Another gate is a function in `gates` and its word in `gates.Name`. Another kind of package is a word in
`entries.Kind`, with its command, and a method in `packages`.
"""
