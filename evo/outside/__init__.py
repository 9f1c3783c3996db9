"""Answers from outside: people, agents and batch services answer a run's questions, by hand or over MCP.

`questions` checks and delivers answers, `mcp_server` is the MCP server with the tools that need no
run, `mcp_tools` has those of a run, `drafts` what builds and checks drafts, `kit` the files of an agent's client.
"""
