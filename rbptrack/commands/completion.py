"""`python -m rbptrack completion bash|zsh`: the script with which a shell completes the command `rbptrack`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rbptrack.base.errors import BadInput, unknown
from rbptrack.commands.declared.housekeeping import COMPLETION

# bash splits words at = and :, and replaces what follows the last of them, but not within quotes.
BASH = r"""_rbptrack() {
    local typed="${COMP_LINE:0:COMP_POINT}" candidate start=""
    local word="${typed##*[[:space:]]}"
    if [[ $word != [\'\"]* && $word == *[=:]* ]]; then
        start="${word%"${word##*[=:]}"}"
    fi
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("${candidate#"$start"}")
    done < <("$1" completion query "$typed" 2>/dev/null)
    if [[ ${COMPREPLY[0]} == *[=./] || $word == *= ]] && [[ ${COMPREPLY[0]} != */*[!/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F _rbptrack rbptrack 2>/dev/null || complete -F _rbptrack rbptrack
"""

ZSH = r"""_rbptrack() {
    local -a found open whole
    local before="${(j: :)words[1,CURRENT-1]} "
    found=("${(@f)$(${words[1]} completion query "$before$PREFIX" 2>/dev/null)}")
    open=(${(M)found:#*[=./]})
    whole=(${found:#*[=./]})
    (( $#whole )) && compadd -V rbptrack -- "${whole[@]}"
    (( $#open )) && compadd -V rbptrack-open -S '' -- "${open[@]}"
    return 0
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
compdef _rbptrack rbptrack
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH}


def main(arguments: Sequence[str]) -> int:
    """Print a script, or, for the script, what may follow a line; returns exit code 0; raises BadInput."""
    if list(arguments[:1]) == ["query"]:
        from rbptrack.commands.candidates import candidates

        sys.stdout.writelines(f"{candidate}\n" for candidate in candidates(arguments[1] if arguments[1:] else ""))
        return 0
    if len(arguments) != 1:
        raise BadInput(f"for which shell? {COMPLETION.usage}")
    if arguments[0] not in SCRIPTS:
        raise unknown("shell", arguments[0], SCRIPTS)
    sys.stdout.write(SCRIPTS[arguments[0]])
    return 0
