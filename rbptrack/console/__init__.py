"""What the terminal shows: sentences, tables, progress; plain lines where there is no terminal."""
