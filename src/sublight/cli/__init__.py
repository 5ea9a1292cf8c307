"""The command line: one thin file a command. Parse, call one library function, pick a view, print."""
