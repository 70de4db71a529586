"""The declarations of all commands, a file for each group of the help page; nothing heavy is imported here."""
