"""A run as an MCP server: coding agents read its questions, try drafts out, and hand kernels in.

`studio` has the tools, `workers` what builds and checks drafts, `server` the protocol.
"""
