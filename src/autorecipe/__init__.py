"""autorecipe: choose, size, start and verify LLM training runs on NVIDIA's Megatron stack.

The Python door is `autorecipe.api`: one function per use case, typed in and typed out. The command line, the MCP server
and the web page call nothing else. Importing this package imports nothing heavy.
"""

__version__ = "0.1.0"
