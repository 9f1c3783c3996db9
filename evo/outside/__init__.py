"""Answers from outside: people, agents and batch services answer a run's questions, by hand or over MCP.

`questions` checks and delivers answers, `mcp_tools` has the tools of a run's MCP server, `mcp_shelf` those that need no
run, `drafts` what builds and checks drafts, `mcp_server` the protocol, `kit` the files of an agent's client.
"""
