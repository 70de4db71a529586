"""The names of the files of a measurement."""

RECORD_FILE = "record.json"
RANKS_FILE = "ranks.parquet"
HISTOGRAM_FILE = "histogram.parquet"
DOCUMENTS_FILE = "documents.parquet"
UNSCORED_FILE = "unscored.parquet"  # the tokens that the model read but that were not scored
TOKENS_FILE = "tokens.json"
CONFIG_FILE = "config.yaml"
SEAL_FILE = ".seal"  # in a cell's folder: the seal of the record, which becomes a tag of the run
