"""What `-h` of each command shows; shells' completion and the errors for wrong options take their options from here."""

from __future__ import annotations

from collections.abc import Mapping

from rbptrack.commands.housekeeping_pages import HOUSEKEEPING
from rbptrack.commands.usage import AS_JSON, DRAWN_OPTIONS, FILTER_OPTIONS, FILTERS_IN_WORDS, STORE_OPTIONS, Help

PAGES: Mapping[str, Help] = {
    "demo": Help(
        "demo [KEY=VALUE ...]",
        """Measures the seven embedded models on the two embedded corpora, fits their laws and writes a report. It needs
        no network, and takes two to three minutes on two cores. It is short for: model=nano/* dataset=stdlib,pydocs

        It takes every option of measure.""",
        examples={"demo": "seven models, two corpora, one law", "demo dataset=pydocs": "on one corpus"},
    ),
    "measure": Help(
        "[measure] [-m] model=NAME,... dataset=NAME,... [k=1,10,100] [KEY=VALUE ...]",
        """Measures every model on every dataset, logs each measurement to the tracking store, and fits the laws.

        Models and datasets take lists and patterns: * stays inside a folder, ** crosses folders. Quotes keep the shell
        from expanding them. What was measured before is found and skipped, and a new k is computed from its stored
        ranks.""",
        {
            "model=NAME,...": "one model, several, or a pattern; below is what there is",
            "dataset=NAME,...": "likewise",
            "k=1,10,100": "the k of RBP_k, or a list by its name: default, paper",
            "protocol=paper": "the procedure of the paper's authors, for every dataset",
            "launch=NAME": "measure on this machine's GPUs, or on a cluster: an executor (rbptrack plugins lists them)",
            "launch.OPTION=VALUE": "an option of the executor, such as launch.cpus=4",
            "launch.gpus=auto": "give each job the GPUs that its model needs",
            "shards=8|auto": "cut each cell into so many tasks, or by what it costs",
            "model.device_map=auto": "spread a model's layers over the GPUs of its job",
            "reference=MODEL": "compare to a second model in the same pass: KL, acceptance, its first token's rank",
            "analyzers=NAME,...": "what analyses a sweep at its end; all by default, [] for none",
            "figures=svg,png,pdf": "how the analyses' figures are drawn; svg alone by default",
            "force=true": "measure again what was measured before",
            "again=columns": "likewise, but only what lacks columns that rank tables have by now",
            "again=analyses": "compute also those analyses anew that are there already",
            "model.dtype=bfloat16": "and every other key of a config: --cfg job shows all, with their values",
            **STORE_OPTIONS,
            "--config-dir FOLDER": "more configs, beside conf/ of the working folder",
        },
        {
            "": "one small embedded model on an embedded corpus",
            "'model=nano/*' dataset=stdlib,pydocs": "a family on two corpora, and its law",
            "'model=pythia/*' dataset=wiki,humaneval k=1,5,50": "models and datasets of the hub; the k to show",
            "model=hf model.repo=org/name dataset=wiki": "any model of the hub",
        },
    ),
    "report": Help(
        "report [FILTERS] [analyzers=NAME,...] [out=FILE.html] [--open]",
        f"""Runs every analyzer over the measurements in the tracking store and writes one page, report.html, into the
        store. Nothing is measured. {FILTERS_IN_WORDS}""",
        {
            **FILTER_OPTIONS,
            "analyzers=NAME,...": "only these analyzers (rbptrack plugins lists them)",
            **DRAWN_OPTIONS,
            "out=FILE.html": "also write the page to this file, and its tables to the folder FILE-tables",
            "--open": "show the page in the browser",
            **STORE_OPTIONS,
            "plugins.path=FOLDER,...": "more folders of analyzers",
        },
        {
            "report": "everything that was measured",
            "report family=nano,pythia dataset=wiki": "two families on one dataset",
            "report analyzers=power_law,lack_of_fit out=laws.html": "two analyses, into a file of yours",
        },
    ),
    "ui": Help(
        "ui [FILTERS] [port=5000] [host=127.0.0.1] [browser=no]",
        """Starts MLflow's server on the tracking store, waits until it answers, and prints a link to the measurements'
        charts. Ctrl-C stops the server.""",
        {
            "port=5000": "where the server listens; where the port is taken, the next free one is used",
            "host=127.0.0.1": "the address it listens on",
            "browser=no": "open no browser; over SSH, in CI and without a display none is opened anyway",
            **FILTER_OPTIONS,
            **STORE_OPTIONS,
        },
        {"ui": "every measurement", "ui 'family=pythia*' dataset=wiki": "some of them"},
    ),
    "plan": Help(
        "plan [on=GPU] [format=table|csv|json] and the words of measure",
        """Says what a sweep would cost, before anything is measured and without weights.

        S and total parameters are counted from the architecture. Documents and tokens are exact where the texts were
        tokenised before, else estimated (~). FLOPs: (2 S + 2 d |V|) per token that the model reads. Memory: weights,
        one sequence's activations and scoring, against what the device has free now. Download: weights that are not
        cached yet.

        Time: FLOPs over the rate of a matrix product, which is measured now on this machine's device or, with on=,
        taken from a GPU's data sheet. What share of it is assumed is said below the table, and how many GPUs each model
        needs. Loading weights and reading texts is not in it.

        The exit code is 1 if a cell cannot be measured.""",
        {
            "on=h100": "time and memory for a GPU that is not here; on=? lists those known",
            "format=csv": "all figures in full, as CSV; or json",
        },
        {
            "plan 'model=pythia/*' dataset=wiki,humaneval": "a family on two datasets",
            "plan 'model=qwen2.5/*' dataset=wiki model.dtype=bfloat16 on=h100": "in half precision, on another GPU",
            "plan 'model=nano/*' dataset=stdlib format=csv > plan.csv": "into a file",
        },
    ),
    "list": Help(
        "list [FAMILY] [FILTERS] [sort=COLUMN] [columns=A,B,...] [format=FORMAT]",
        f"""Lists the measurements in the tracking store, a row each. {FILTERS_IN_WORDS}

        CSV and JSON hold numbers in full under the columns' own names; the other formats round for reading. A column
        rbp_K that was not logged is computed from the stored ranks. With -q, only the runs' ids are printed.""",
        {
            **FILTER_OPTIONS,
            "sort=COLUMN,...": "sort by these columns; -COLUMN sorts from large to small",
            "columns=A,B,...": "which columns, such as model,dataset,ce,ce_se,rbp_5; all: every one, a block each",
            "k=1,5,50": "the k of RBP_k to show, instead of 1, 10, 100",
            "format=FORMAT": "table, csv, markdown, latex or json",
            **STORE_OPTIONS,
        },
        {
            "list pythia sort=ce": "one family, the best first",
            "list columns=model,dataset,rbp_1,rbp_1_se format=latex": "a table for a paper",
            "list -q dataset=wiki": "run ids, for a script",
        },
    ),
    "show": Help(
        "show RUN | MODEL/DATASET",
        """Shows one measurement: its numbers with their standard errors (documents resampled), how its tokens' ranks
        are distributed, how it was measured, and where its files are.

        RUN is a run's id or any unique prefix of it; MODEL/DATASET are as `rbptrack list` prints them.""",
        {
            "k=1,5,50": "the k of RBP_k to show; all that were logged, if none is given",
            "format=json": AS_JSON,
            **STORE_OPTIONS,
        },
        {"show nano-6k/stdlib": "by its name", "show 3f2a": "by the beginning of its run's id"},
    ),
    "analyze": Help(
        "analyze NAME [analyzer.OPTION=VALUE ...] [FILTERS]",
        f"""Runs an analyzer over the measurements in the tracking store, prints its table and sentences, and logs its
        figures and tables. Nothing is measured. {FILTERS_IN_WORDS}""",
        {
            "analyzer=NAME,...": "below is what there is",
            "analyzer.OPTION=VALUE": "an option of the analyzer; rbptrack plugins lists them",
            **FILTER_OPTIONS,
            **DRAWN_OPTIONS,
            "format=json": AS_JSON,
            **STORE_OPTIONS,
            "plugins.path=FOLDER,...": "more folders of analyzers",
        },
        {
            "analyze power_law": "the law in size, of everything that was measured",
            "analyze power_law 'analyzer.ks=[1,10]' family=nano": "of one family, with an option",
        },
    ),
    "plugins": Help(
        "plugins [plugins.path=FOLDER,...]",
        """Lists every analyzer with its source, version, options and what it answers, and says what failed to load and
        why.

        Analyzers come from rbptrack itself, from plugins/*.py of the folder you work in, from plugins.path, and from
        installed packages (entry point group rbptrack.analyzers). Packages can bring model families and datasets, too
        (entry point group rbptrack.configs).""",
        {"plugins.path=FOLDER,...": "more folders of analyzers", "format=json": AS_JSON},
    ),
    "export": Help(
        "export out=bundle.zip | ranks=csv|parquet out=FILE | hub=FOLDER | to=wandb [FILTERS]",
        """Writes measurements into one file that `rbptrack import` reads into any other store, with the same
        fingerprints and numbers: whoever gets it can analyse them without a model. What is damaged is named and left
        out; the command then ends with 1. With ranks= it writes one table instead, a row per scored token (rank, ln p,
        entropy, document and its id and group) or, with documents=true, per document (tokens, bytes, CE, bits per byte,
        RBP_k).

        hub=FOLDER writes a folder for the Hugging Face hub: a dataset card (README.md), the measurements as a table,
        and .eval_results for the repositories of models. to=wandb makes a run of Weights & Biases of each measurement;
        other exporters are files in plugins/exporters/.""",
        {
            "out=FILE": "the file to write, .zip, .csv or .parquet; it must not exist yet",
            "ranks=csv": "or parquet: ranks as a table, to join with your own by dataset and id",
            "hub=FOLDER": "a folder to upload; it must not exist yet",
            "to=wandb": "runs of Weights & Biases: project=NAME, offline=true (files only), out=FOLDER (of the files)",
            "documents=true": "a row per document instead of a row per token",
            "tokens=true": "keep the ids of the tokens, from which the text can be read; they are left out otherwise",
            **FILTER_OPTIONS,
            **STORE_OPTIONS,
        },
        {
            "export out=nano.zip family=nano": "all measurements of one family",
            "export to=wandb project=ranks family=nano": "a run of Weights & Biases each",
            "export ranks=csv documents=true out=documents.csv dataset=stdlib": "CE and RBP_k of every document",
        },
    ),
    "import": Help(
        "import PATH [dataset=NAME] [sizes=sizes.csv] [vocab_size=N] | scores=PATH",
        """Reads measurements of others into the store. Everything is checked before anything is written: all of it is
        imported, or nothing. What the store holds already is skipped.

        PATH is a bundle.zip that `rbptrack export` wrote: the same fingerprints, the same numbers.

        Or it is a results.csv or .parquet with a row per measurement: model, dataset, non_embedding_params, ce and
        rbp_<k>, and where known family, size, num_tokens, vocab_size, seq_len and <metric>_se.

        Or it is a folder that the paper's authors' code wrote: <dataset>/<org>/<model>/top<k>/metrics.json.

        Or it is a .jsonl of prompt log-probabilities, a response of vLLM (with ranks) or SGLang (CE alone) a line, one
        request a document: dataset=NAME says which texts were sent.

        scores=PATH brings in scores of tasks, for the analyzer proxies: a .csv or .parquet with model, task, score (0
        to 1) and where known revision and n; results_*.json of lm-evaluation-harness; logs of inspect_ai (.eval,
        .json); .eval_results/*.yaml of a model's repository; or a folder of them.""",
        {
            "scores=PATH": "scores of tasks in place of measurements",
            "scores_map=FILE.csv": "name,model: which name in the scores is which model here",
            "scores_metric=NAME": "of a task with several: acc, exact_match, ...",
            "sizes=FILE.csv": "for a folder or .jsonl: model,non_embedding_params, which their files lack",
            "vocab_size=N": "for these: |V|, with which their ranks become a rank table",
            "dataset=NAME": "for a .jsonl: the name of the texts",
            "model=NAME": "for a .jsonl: the model's name or hub id, where not the one that its responses name",
            "without_s=true": "take measurements without S too, which no law in size takes",
            **STORE_OPTIONS,
        },
        {
            "import nano.zip": "read a bundle",
            "import results.csv": "read a table",
            "import vllm.jsonl dataset=wiki vocab_size=128256 sizes=s.csv": "read what vLLM answered",
            "import scores=results/": "read scores of tasks",
        },
    ),
    **HOUSEKEEPING,
}
