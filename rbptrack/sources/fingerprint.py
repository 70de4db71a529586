"""Computes the fingerprint of settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def fingerprint(settings: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of settings by name. Their order does not matter."""
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
