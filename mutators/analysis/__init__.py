"""Analysis of kernel files: their syntax tree, data flow and dependences."""
