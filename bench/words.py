"""What agents say in the benchmarks; apart from all else, so that a server that is timed loads nothing for it."""

TEXT = "fifty bytes of text, as a model streams its tokens"
