"""`python -m rbptrack cache`: how large the cache of selections and tokenised corpora is, and emptying it."""

from __future__ import annotations

from rbptrack.console import say
from rbptrack.errors import BadInput
from rbptrack.sources import cache

_HELP = """\
Selections of hub datasets (documents), tokenised corpora (tokens) and the commits that revisions stood for, kept in the
user's cache folder (RBPTRACK_CACHE, else the system's). Everything in it is made again where it is needed.

  python -m rbptrack cache          show where it is and how large
  python -m rbptrack cache clear    empty it

Weights are not here but in the hub's own cache: hf cache ls, hf cache rm."""


def main(arguments: list[str]) -> int:
    """Show or clear; returns exit code 0; raises BadInput for exit code 2."""
    if set(arguments) & {"--help", "-h"}:
        say(_HELP)
        return 0
    if arguments not in ([], ["clear"]):
        raise BadInput(f"cache {' '.join(arguments)}: expected nothing, or clear")
    found = cache.contents()
    total = sum(size for _, size in found.values())
    if arguments:
        cache.clear()
        say(f"cleared {cache.folder()}: {total / 1e6:.1f} MB")
        return 0
    say(str(cache.folder()))
    for kind, (number, size) in found.items():
        say(f"{kind:<10} {number:>5} files  {size / 1e6:>9.1f} MB")
    say(f"{'together':<10} {sum(n for n, _ in found.values()):>5} files  {total / 1e6:>9.1f} MB")
    return 0
