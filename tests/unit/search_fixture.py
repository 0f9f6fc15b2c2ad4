"""A small catalogue for the tests of search: the tools that seed 002 names, among their like."""

from __future__ import annotations

import json

from toolgate.search import Document, Index

SCREENSHOT = "screenshot"
CRAWL = "I need to crawl a website and extract links"
GITHUB_ISSUES = "I need to interact with GitHub issues"

TOOLS = {
    "playwright": {
        "browser_navigate": ("Navigate to a URL", {"url": "The URL to navigate to"}),
        "browser_navigate_back": ("Go back to the previous page", {}),
        "browser_screenshot": (
            "Take a screenshot of the current page",
            {"filename": "File name to save the image to", "fullPage": "The full scrollable page, not the viewport"},
        ),
        "browser_click": ("Perform a click on a web page", {"element": "What to click", "ref": "Its reference"}),
        "browser_type": ("Type text into an editable element", {"element": "Which element", "text": "What to type"}),
        "browser_select_option": ("Select an option in a dropdown", {"element": "Which", "values": "What to select"}),
        "browser_hover": ("Hover over an element on the page", {"element": "Which element", "ref": "Its reference"}),
        "browser_press_key": ("Press a key on the keyboard", {"key": "Name of the key to press, such as ArrowLeft"}),
        "browser_wait_for": (
            "Wait for text to appear or a time to pass",
            {"time": "Seconds", "text": "What to wait for"},
        ),
        "browser_evaluate": ("Evaluate a JavaScript expression on the page", {"function": "The function to run"}),
        "browser_file_upload": ("Upload one or several files", {"paths": "Absolute paths of the files to upload"}),
        "browser_handle_dialog": ("Handle a dialog", {"accept": "Whether to accept", "promptText": "Text of a prompt"}),
        "browser_console_messages": ("Return all console messages", {"level": "Least level of the messages"}),
        "browser_network_requests": ("Return all network requests since loading the page", {}),
        "browser_tabs": (
            "List, create, close, or select a browser tab",
            {"action": "What to do", "index": "Which tab"},
        ),
        "browser_resize": ("Resize the browser window", {"width": "Width of the window", "height": "Height"}),
        "browser_close": ("Close the page", {}),
    },
    "sqlite": {
        "query": (
            "Run a read-only SQL query against the database",
            {"sql": "The SELECT statement", "params": "Values"},
        ),
        "execute": ("Run a statement that changes the database", {"sql": "The INSERT, UPDATE or DELETE statement"}),
        "list_tables": ("List all tables in the database", {}),
        "describe_table": ("Get the columns of a table", {"table": "Name of the table"}),
        "create_table": ("Create a new table in the database", {"sql": "The CREATE TABLE statement"}),
        "append_insight": ("Add a business insight to the memo", {"insight": "What was found out"}),
    },
}
GITHUB = {
    "create_issue": (
        "Create a new issue in a GitHub repository",
        {"owner": "Owner of the repository", "title": "Title"},
    ),
    "list_issues": ("List the issues of a GitHub repository", {"owner": "Owner", "state": "open, closed or all"}),
    "create_pull_request": ("Create a new pull request", {"owner": "Owner", "head": "Branch with the changes"}),
    "search_repositories": ("Search for GitHub repositories", {"query": "What to search for"}),
    "get_file_contents": ("Get the contents of a file or directory of a repository", {"path": "Path of the file"}),
}
REGISTRY = {
    "@modelcontextprotocol/server-github": "GitHub API integration",
    "@modelcontextprotocol/server-gitlab": "GitLab API, enabling project management",
    "@modelcontextprotocol/server-postgres": "Read-only database access with schema inspection",
    "@modelcontextprotocol/server-slack": "Channel management and messaging",
    "@modelcontextprotocol/server-filesystem": "Secure file operations with configurable access controls",
    "@modelcontextprotocol/server-brave-search": "Web and local search using the Brave Search API",
    "@modelcontextprotocol/server-google-maps": "Location services, directions, and place details",
    "@modelcontextprotocol/server-puppeteer": "Browser automation and web scraping",
    "@modelcontextprotocol/server-memory": "Persistent memory as a knowledge graph",
    "@modelcontextprotocol/server-everart": "AI image generation using various models",
    "@sentry/mcp-server": "Error monitoring: query issues and events of Sentry",
    "@notionhq/notion-mcp-server": "Pages and databases of Notion",
}


def tools(server: str, about: dict[str, tuple[str, dict[str, str]]]) -> list[Document]:
    return [
        Document(server, name, description=description, schema=schema(parameters))
        for name, (description, parameters) in about.items()
    ]


def schema(parameters: dict[str, str]) -> bytes:
    properties = {name: {"type": "string", "description": said} for name, said in parameters.items()}
    return json.dumps({"type": "object", "properties": properties}).encode()


def local() -> Index:
    index = Index()
    for server, about in TOOLS.items():
        index.put(server, tools(server, about))
    return index


def registry() -> Index:
    index = Index()
    index.put("registry", [Document("", name, "servers", description=said) for name, said in REGISTRY.items()])
    return index
