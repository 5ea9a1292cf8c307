"""One pure parser per kind of command output: text in, frozen values with line numbers out."""
