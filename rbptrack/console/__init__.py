"""What the terminal shows: sentences, tables, progress; plain lines without a terminal."""
