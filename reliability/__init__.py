"""Campaigns of hours: inputs, damage, kills and cuts at full count. `python -m reliability NAME --count N`."""
