"""One function per use case, typed in and typed out: the only door for the command line, MCP and the web page.

Each use case lives in a module of its name; import from there (`from autorecipe.api.recommend import recommend`).
"""
