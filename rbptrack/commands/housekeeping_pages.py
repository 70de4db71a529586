"""What `-h` shows of the commands that keep store and machine in order: the second part of `pages`."""

from __future__ import annotations

from collections.abc import Mapping

from rbptrack.commands.usage import AS_JSON, FILTER_OPTIONS, FILTERS_IN_WORDS, STORE_OPTIONS, Help

HOUSEKEEPING: Mapping[str, Help] = {
    "verify": Help(
        "verify [FILTERS] [read_data=true] [repair=true]",
        f"""Checks the tracking store: its database, and of every finished measurement that its files are there, that
        its numbers are, and that its fingerprint is the one that its params give. {FILTERS_IN_WORDS}

        Prints a line for everything that is wrong, and ends with 1 if anything is.""",
        {
            "read_data=true": "also read every file: checksums, and whether the ranks give CE, RBP_k and histogram",
            "repair=true": "mark damaged measurements, so that the next sweep measures them again; nothing else",
            "format=json": AS_JSON,
            **FILTER_OPTIONS,
            **STORE_OPTIONS,
        },
        {"verify": "after a crash", "verify read_data=true": "a backup, before you rely on it"},
    ),
    "sync": Help(
        "sync [moved=true]",
        """Delivers the measurements that wait in mlruns/spool because their tracking store was away, each once, and
        closes the runs that a killed process left RUNNING. Every sweep does the same when it starts.""",
        {
            "moved=true": "repair a local store whose folder was moved or renamed: its runs find their artifacts",
            **STORE_OPTIONS,
        },
    ),
    "cache": Help(
        "cache [clear]",
        """Shows where the cache is and how large; clear removes what rbptrack has put there, and nothing else.

        It holds selected texts of hub datasets (documents), tokenised corpora (tokens), the commits that revisions
        stood for, and what was read from tracking servers (artifacts; at most RBPTRACK_CACHE_BYTES, or else 5 GB), in
        the folder RBPTRACK_CACHE, or else in the system's place for caches. Everything in it is made again when it is
        needed. Weights are in the hub's own cache: hf cache ls, hf cache rm.""",
        examples={"cache": "where it is, and how large", "cache clear": "remove it"},
    ),
    "bench": Help(
        "bench [model=...] [OPTIONS]",
        """Times, in one process and in turn, the bare forward pass (model(x).logits), a measurement of the same
        batches, and a large matrix product, which gives the arithmetic limit: medians over rounds, by the wall
        clock and in seconds of the processor. On a busy machine trust the latter.

        A model with a slash is a configured one and needs a dataset. Any other is a published shape with random
        weights, on random documents of 16 to seq_len tokens, without a network; model=? lists the shapes.""",
        {
            "model=NAME,...": "pythia-14m,pythia-70m",
            "dataset=NAME": "what a configured model reads",
            "tokens=16384": "how many tokens",
            "seq_len=512": "tokens that the model sees together",
            "vocabulary=N": "another vocabulary than the shape's",
            "rounds=4": "how often each is timed",
            "dtype=float32": "or bfloat16, float16",
            "tf32=false": "round the factors of products, on CUDA",
            "device=auto": "or cpu, cuda:1",
            "engine.threads=1": "threads of both; and the other options of engine",
            "out=FILE.json": "write the figures, too",
        },
        {
            "bench": "two published shapes",
            "bench model=nano/2m dataset=stdlib": "a configured model on a dataset",
        },
    ),
    "completion": Help(
        "completion bash|zsh",
        """Prints the script with which bash or zsh completes commands, models, datasets, options and their values when
        Tab is pressed. The shell's start-up file loads it, by the line that the examples show. It completes the command
        rbptrack, not python -m rbptrack.""",
        examples={
            "completion bash": 'in ~/.bashrc: eval "$(rbptrack completion bash)"',
            "completion zsh": 'in ~/.zshrc: eval "$(rbptrack completion zsh)"',
        },
    ),
    "help": Help(
        "help [COMMAND]", "Shows every command in a line each, or what a command does, its options and examples."
    ),
}
