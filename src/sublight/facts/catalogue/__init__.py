"""Facts as data: one file a model, one file a GPU, one file a kind of link, each value with its source."""
