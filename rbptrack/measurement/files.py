"""The names of the files of a measurement."""

RECORD_FILE = "record.json"
RANKS_FILE = "ranks.parquet"
HISTOGRAM_FILE = "histogram.parquet"
DOCUMENTS_FILE = "documents.parquet"
UNSCORED_FILE = "unscored.parquet"  # the tokens that the model read but that were not scored
TOKENS_FILE = "tokens.json"
CONFIG_FILE = "config.yaml"
MEASUREMENT_FILES = (RANKS_FILE, HISTOGRAM_FILE, DOCUMENTS_FILE, UNSCORED_FILE, TOKENS_FILE, CONFIG_FILE)
SEAL_FILE = ".seal"  # in a cell's folder: the seal of the record, which becomes a tag of the run
