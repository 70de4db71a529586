"""`python -m rbptrack cache`: the size of the cache of documents and tokens, and removing it."""

from __future__ import annotations

from rbptrack.base.errors import BadInput
from rbptrack.base.words import compact_bytes
from rbptrack.commands.declared.housekeeping import CACHE, CacheConfig
from rbptrack.console.output import say
from rbptrack.sources import cache


def _cache(config: CacheConfig) -> int:
    if config.action not in ("", "clear"):
        raise BadInput(f"cache {config.action}: expected nothing, or clear")
    files = cache.contents()
    total = sum(size for _, size in files.values())
    if config.action:
        cleared = cache.clear()
        place = cache.folder()
        say(f"cleared {place}: {compact_bytes(total)}" if cleared else f"rbptrack has cached nothing in {place}")
        return 0
    say(str(cache.folder()))
    for kind, (number, size) in files.items():
        say(f"{kind:<10} {number:>5} files  {compact_bytes(size):>10}")
    say(f"{'together':<10} {sum(n for n, _ in files.values()):>5} files  {compact_bytes(total):>10}")
    return 0


main = CACHE.running(_cache)
