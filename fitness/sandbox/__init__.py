"""The walls around code of candidates: processes, memory, files and what a source may say."""
