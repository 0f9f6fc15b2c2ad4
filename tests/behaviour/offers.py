"""What two servers of seed 002's examples offer: as many tools as they have there, fifty-two and six."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Tool → what it does, and its parameters, `-` for none, with a `*` behind those that are required.
PLAYWRIGHT = """
browser_navigate | Navigate to a URL | url*
browser_screenshot | Take a screenshot of the current page | filename fullPage
browser_navigate_back | Go back to the page before | -
browser_navigate_forward | Go forward to the next page in the history | -
browser_reload | Load the page again | -
browser_click | Click on an element of the page | ref* button
browser_double_click | Click twice on an element | ref*
browser_hover | Move the pointer over an element | ref*
browser_drag | Drag one element onto another | from* to*
browser_drop_files | Drop files onto an element | ref* paths*
browser_type | Type text into a field | ref* text*
browser_fill_form | Fill in several fields at once | fields*
browser_select_option | Choose from a dropdown | ref* values*
browser_check | Tick a checkbox | ref*
browser_uncheck | Clear a checkbox | ref*
browser_press_key | Press a key of the keyboard | key*
browser_key_down | Hold a key down | key*
browser_key_up | Let a key go | key*
browser_mouse_move | Move the mouse to a place | x* y*
browser_mouse_click | Click with the mouse at a place | x* y*
browser_mouse_wheel | Turn the wheel of the mouse | x y
browser_file_upload | Upload one or several files | paths*
browser_handle_dialog | Accept or dismiss a dialog | accept* text
browser_snapshot | Describe the page by its accessibility tree | -
browser_evaluate | Evaluate a JavaScript expression in the page | function*
browser_run_code | Run a script of several steps | code*
browser_wait_for | Wait until a text appears or a time has passed | text seconds
browser_console_messages | Return what was written to the console | level
browser_console_clear | Forget what was written to the console | -
browser_network_requests | Return the requests of the page since it was loaded | -
browser_network_clear | Forget the requests of the page | -
browser_network_offline | Cut the page off from the network | offline*
browser_route | Answer requests that match a pattern oneself | pattern*
browser_unroute | Let requests through again | pattern
browser_route_list | Show which requests are answered oneself | -
browser_tabs | List, open, close or choose a tab | action* index
browser_resize | Change the size of the window | width* height*
browser_close | Close the page | -
browser_install | Install the browser that is configured | -
browser_pdf_save | Save the page as a PDF | filename
browser_cookie_get | Return one cookie | name*
browser_cookie_list | Return all cookies | domain
browser_cookie_set | Set a cookie | name* value*
browser_cookie_delete | Delete a cookie | name*
browser_localstorage_get | Return a value of the local storage | key*
browser_localstorage_set | Set a value in the local storage | key* value*
browser_localstorage_clear | Empty the local storage | -
browser_storage_state | Save cookies and storage to a file | filename
browser_start_tracing | Begin to record a trace | -
browser_stop_tracing | End the trace that is recorded | -
browser_verify_text_visible | Check that a text can be seen | text*
browser_generate_locator | Make a locator for an element | ref*
"""

SQLITE = """
query | Run a SQL query | sql* params
execute | Run a statement that changes the database | sql* params
list_tables | List all tables of the database | -
describe_table | Show the columns of a table | table*
create_table | Create a table | sql*
append_insight | Add what was found out to the memo | insight*
"""

_TYPES = {"params": "array", "paths": "array", "fields": "array", "values": "array", "accept": "boolean"}


def read(table: str) -> list[dict[str, Any]]:
    """A table's tools as they are listed."""
    rows = (line.split(" | ") for line in table.strip().splitlines())
    return [_tool(name, description, parameters.replace("-", "").split()) for name, description, parameters in rows]


def _tool(name: str, description: str, parameters: list[str]) -> dict[str, Any]:
    required = [each.rstrip("*") for each in parameters if each.endswith("*")]
    properties: Mapping[str, Any] = {
        each.rstrip("*"): {"type": _TYPES.get(each.rstrip("*"), "string")} for each in parameters
    }
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "inputSchema": schema}
