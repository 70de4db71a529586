"""Read the names of models as evaluation programs and users write them."""

from __future__ import annotations

import re

from rbptrack.base.names import separate_size

_HUB_CACHE_PATH = re.compile(r"models--(?P<repo>[^/]+)(?:/snapshots/(?P<commit>[0-9a-f]{7,64}))?(?:/|$)")
_PATH_BEGINNINGS = ("/", "./", "../", "~")
_ORGANISATION = re.compile(r"^[^_]+(?:_[^_]+)*__(?=[^_]+(?:_[^_]+)*$)")  # org__ in org__name
_DECIMAL_SIZE = re.compile(r"(?<=-)(\d+)_(\d+[kmbt])(?=$|-)", re.ASCII | re.IGNORECASE)
_FINAL_BITS = re.compile(r"-\d+-?bit$", re.ASCII | re.IGNORECASE)
_BITS = re.compile(r"(?<=\d)[-_ ]?bit\b", re.IGNORECASE)
_DECIMAL = re.compile(r"(?<=\d)_(?=\d)")


def plain_name(model: str) -> tuple[str, str]:
    """Return a model's name in its usual form, and the commit that the name contains; empty if it contains none.

    Slashes at the end are removed. A path in the cache of the Hugging Face Hub
    (`.../models--EleutherAI--pythia-70m/snapshots/abc1234`) becomes the model's ID and its commit.
    """
    name = re.sub(r"/{2,}", "/", model.strip())
    if cached := _HUB_CACHE_PATH.search(name):
        return cached["repo"].replace("--", "/", 1), cached["commit"] or ""
    return name.rstrip("/") or name, ""


def hub_id(name: str) -> str:
    """Return a model's name if it can be an ID on the Hugging Face Hub (`org/name`); otherwise an empty text."""
    name = plain_name(name)[0]
    return "" if name.startswith(_PATH_BEGINNINGS) or name.count("/") != 1 else name


def family_and_size(model: str) -> tuple[str, str]:
    """Return the family and the size in a model's name: (`pythia`, `70m`) for `EleutherAI/pythia-70m`.

    The size is the part that looks like a number of parameters: (`Qwen2.5-Instruct`, `0.5B`) for
    `Qwen2.5-0.5B-Instruct`. If no part looks like a number, the size is the part after the last hyphen: (`gpt2`,
    `medium`) for `gpt2-medium`. The size is empty if the name has no hyphen. `1_6b` is read as the size `1.6b`, and
    `org__name` as `org/name`. A number of bits, such as `8-bit`, is not a size.
    """
    name = _ORGANISATION.sub("", model.rpartition("/")[2])
    name = _DECIMAL_SIZE.sub(r"\1.\2", name)
    family, size = separate_size(name)
    bits = "".join(_FINAL_BITS.findall(name)[-1:])
    name = name.removesuffix(bits)
    if not size and "-" in name.strip("-"):
        family, _, size = name.rpartition("-")
        family += bits
    return family, size


def canonical_name(name: str) -> str:
    """Return a name in one spelling. `A-1_6b-8-bit` and `a-8bit-1.6b` have the same canonical name."""
    model, at, revision = _DECIMAL.sub(".", _BITS.sub("bit", name.lower())).partition("@")
    family, size = separate_size(model)
    return "-".join(filter(None, (family, size))) + at + revision
