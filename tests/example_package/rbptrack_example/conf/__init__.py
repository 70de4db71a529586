"""Its configs, offered by the entry point group rbptrack.configs."""
