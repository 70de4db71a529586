"""What every room may use: errors, durable files, checked Parquet, escaped names, words, this process."""
