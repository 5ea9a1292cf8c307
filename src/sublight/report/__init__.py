"""From a record to something a person reads: views make a document, renderers show it."""
