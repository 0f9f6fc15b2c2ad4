"""What is served beside MCP.

admin    what an operator's programs ask of a running gateway, at /admin
connect  the pages by which a user signs in at a server, at /connect
"""
