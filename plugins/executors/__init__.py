"""The executors that ship with rbptrack; `rbptrack.analysis.executors` says what one is."""
