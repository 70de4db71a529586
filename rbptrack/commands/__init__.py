"""What each command does; its options stand in `rbptrack.cli`."""
