"""Words that our sentences and names avoid: `python -m tools.words PATH ...` lists where they stand.

What a program can check of the rules for messages, docs and code: phrases that nobody would say aloud, the first word of
a function's docstring (a verb), and names of variables that do not say what they hold.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CHECKED = ("rbptrack", "plugins", "conf", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")

# Phrases, and words to put in their place.
PHRASES = {
    r"of which|of whom|by whom": "two sentences",
    r"who(so)?ever": "'if you', 'anyone who'",
    r"there (is|are|was|were)": "a subject and an active verb",
    r"(is|are|was|were) (told|said)": "a subject and an active verb",
    r"(is|are) shown to": "the verdict itself",
    r"what (is|are|was|were|there|it has)": "the noun",
    r"in none of": "a positive claim, then the count",
    r"likewise": "the noun",
    r"(cannot|can) be told": "undecided, inconclusive",
    r"(is|are) not known": "unknown",
    r"flat memory": "constant memory",
    r"no such (value|GPU)": "unknown, invalid",
    r"hand(s|ed)? on|bring(s)? along": "export, import, pass",
    r"(is|are) there already": "cached, done",
}
NOT_VERBS = set(
    "The A An What Whoever Whether Which Of By How Where When Why Each Every All Both One Two Its It These Those For As With "
    "BadInput From In Into So If Nothing None Not Among".split()
)
VAGUE_NAMES = {"one", "mine", "said", "told", "known", "asked", "found", "each", "of"}

BANNED = re.compile(
    "|".join(rf"(?P<p{number}>\b(?:{phrase})\b)" for number, phrase in enumerate(PHRASES)), re.IGNORECASE
)


def faults(path: Path) -> Iterator[str]:
    """Yield `file:line: fault` for everything in one file that breaks a rule."""
    text = path.read_text()
    lines = _python_texts(text) if path.suffix == ".py" else enumerate(text.splitlines(), start=1)
    for number, words in lines:
        for match in BANNED.finditer(words):
            remedy = list(PHRASES.values())[int(match.lastgroup[1:])]
            yield f"{path}:{number}: '{match[0]}': say {remedy}"
    if path.suffix == ".py":
        tree = ast.parse(text)
        yield from (f"{path}:{fault}" for fault in (*_docstring_faults(tree), *_name_faults(tree)))


def _python_texts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of strings and comments, with their numbers."""
    in_words = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in in_words:
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def _docstring_faults(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        first_word = (ast.get_docstring(node) or "Return").split()[0].strip("`.,:;")
        if first_word in NOT_VERBS and not is_property:
            yield f"{node.lineno}: the docstring of {node.name} begins with '{first_word}': begin with a verb"


def _name_faults(tree: ast.Module) -> Iterator[str]:
    fields = {id(field.target) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for field in _fields(node)}
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in VAGUE_NAMES:
            yield f"{node.lineno}: '{name}' does not say what it holds"


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """Return the fields of a dataclass: names of a contract, not of variables."""
    return [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield the Python, YAML and Markdown files of folders and files, without embedded data."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in {".py", ".yaml", ".md"} and "embedded" not in file.parts:
                yield file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; all that we check without any")
    paths = parser.parse_args().paths or [HERE / name for name in CHECKED]
    broken_rules = [fault for file in files(paths) for fault in faults(file)]
    print("\n".join(broken_rules))
    sys.exit(bool(broken_rules))


if __name__ == "__main__":
    main()
